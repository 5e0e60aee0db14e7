#include "job/part_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <tuple>

#include "job/index_codec.h"
#include "job/recording_codec.h"
#include "support/file.h"
#include "support/version.h"
#include "support/zstd_bytes.h"

namespace whyrss {
namespace {

constexpr std::string_view kMagic = "WHYRSSPT";
constexpr std::uint32_t kPartVersion = 1;
constexpr int kCompressionLevel = 3;
// An entry takes some 200 bytes: an index of five million recordings.
constexpr std::uint64_t kMostIndexBytes = std::uint64_t{1} << 30;
// A recording of 20,000 processes, each with all that it may have.
constexpr std::uint64_t kMostBlockBytes = std::uint64_t{5} << 28;

struct PartHeader {
  std::array<char, 8> magic;
  std::uint32_t version, reserved;
  std::uint64_t index_bytes;
  std::uint64_t checksum;  // of what stands before it, and the index
};
static_assert(sizeof(PartHeader) == 32);

std::uint64_t head_checksum(const PartHeader& header, std::string_view index) {
  const std::uint64_t of_header = XXH3_64bits(&header, offsetof(PartHeader, checksum));
  return XXH3_64bits_withSeed(index.data(), index.size(), of_header);
}

auto order_of(const PartEntry& entry) { return std::tie(entry.boot_id, entry.host, entry.session); }

// False at an error or the end of the file.
bool read_fully_at(const Fd& fd, std::uint64_t offset, char* to, std::size_t size) {
  while (size > 0) {
    const ssize_t got = pread(fd.get(), to, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    size -= static_cast<std::size_t>(got);
    offset += static_cast<std::uint64_t>(got);
  }
  return true;
}

// Sorted, each once, and of sizes that can be added up.
bool is_canonical(const PartIndex& index) {
  const auto& nodes = index.node_lists;
  if (std::ranges::adjacent_find(nodes, std::greater_equal<>()) != nodes.end()) return false;
  const auto in_order = [](const PartEntry& a, const PartEntry& b) { return order_of(a) < order_of(b); };
  for (std::size_t i = 0; i < index.entries.size(); ++i) {
    if (i > 0 && !in_order(index.entries[i - 1], index.entries[i])) return false;
    if (index.entries[i].stored_bytes > kMostBlockBytes || index.entries[i].raw_bytes > kMostBlockBytes) return false;
  }
  return true;
}

Error no_part(const std::string& path, const std::string& why) { return Error{fmt::format("{}: {}", path, why)}; }

Result<Fd> open_part(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return system_error("cannot open", path);
  struct stat status {};
  if (fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) return no_part(path, "is no regular file, so no part");
  return fd;
}

std::uint64_t size_of(const Fd& fd) {
  struct stat status {};
  return fstat(fd.get(), &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

struct Head {
  PartIndex index;
  std::uint64_t bytes = 0;
};

Result<Head> read_head(const Fd& fd, const std::string& path, std::uint64_t size_bytes) {
  PartHeader header{};
  const bool is_whole = read_fully_at(fd, 0, reinterpret_cast<char*>(&header), sizeof header);
  if (std::string_view(header.magic.data(), std::min<std::size_t>(size_bytes, kMagic.size())) !=
      kMagic.substr(0, size_bytes))
    return no_part(path, "is no part of a job (whyrss reduce writes them), nor a recording");
  if (!is_whole) return no_part(path, fmt::format("is cut off: {} bytes are there", size_bytes));
  if (header.version != kPartVersion)
    return no_part(path,
                   fmt::format("is a part of format {}; this whyrss ({}) reads {}: reduce and merge with one version",
                               header.version, kVersion, kPartVersion));
  if (header.index_bytes > kMostIndexBytes) return no_part(path, "is damaged: its index would have over a GiB");
  if (sizeof header + header.index_bytes > size_bytes)
    return no_part(
        path, fmt::format("is cut off: {} bytes are there, its index alone has {}", size_bytes, header.index_bytes));
  std::string bytes(header.index_bytes, '\0');
  if (!read_fully_at(fd, sizeof header, bytes.data(), bytes.size())) return system_error("cannot read", path);
  if (head_checksum(header, bytes) != header.checksum)
    return no_part(path, "is damaged: its index does not fit its checksum");
  Result<PartIndex> index = decode_index(bytes);
  if (!index) return no_part(path, index.error());
  if (!is_canonical(*index)) return no_part(path, "is damaged: its index is not in order");
  return Head{std::move(*index), sizeof header + header.index_bytes};
}

}  // namespace

PartBlock make_block(const ReducedRecording& recording) {
  const std::string raw = encode_recording(recording);
  PartBlock block;
  block.stored.resize(most_compressed_bytes(raw.size()));
  block.stored.resize(
      compress(std::as_bytes(std::span(raw)), std::as_writable_bytes(std::span(block.stored)), kCompressionLevel));
  block.entry = {.boot_id = recording.boot_id,
                 .host = recording.host,
                 .session = recording.session,
                 .node = recording.node,
                 .job = recording.job,
                 .version = recording.version,
                 .complete = recording.complete,
                 .duration_ms = static_cast<std::uint64_t>(std::max<std::int64_t>(recording.duration_ms, 0)),
                 .processes = recording.processes.size(),
                 .stored_bytes = block.stored.size(),
                 .raw_bytes = raw.size(),
                 .checksum = XXH3_64bits(block.stored.data(), block.stored.size())};
  return block;
}

Result<ReducedRecording> read_stored(std::string_view stored, const PartEntry& entry) {
  const std::string name = fmt::format("the recording {} of {}", entry.session, entry.host);
  if (entry.raw_bytes > kMostBlockBytes || ZSTD_getFrameContentSize(stored.data(), stored.size()) != entry.raw_bytes)
    return Error{name + " is damaged: it is of another size"};
  std::string raw(entry.raw_bytes, '\0');
  if (decompress(std::as_bytes(std::span(stored)), std::as_writable_bytes(std::span(raw))) != raw.size())
    return Error{name + " is damaged: it cannot be decompressed"};
  return decode_recording(raw);
}

std::string part_head(const PartIndex& index) {
  require(is_canonical(index), "the index of a part is in order");
  const std::string bytes = encode_index(index);
  PartHeader header{.magic = {}, .version = kPartVersion, .reserved = 0, .index_bytes = bytes.size(), .checksum = 0};
  std::ranges::copy(kMagic, header.magic.begin());
  header.checksum = head_checksum(header, bytes);
  std::string head(sizeof header, '\0');
  std::memcpy(head.data(), &header, sizeof header);
  return head + bytes;
}

Result<PartFile> PartFile::open(const std::string& path) {
  Result<Fd> fd = open_part(path);
  if (!fd) return Error{fd.error()};
  const std::uint64_t size_bytes = size_of(*fd);
  Result<Head> head = read_head(*fd, path, size_bytes);
  if (!head) return Error{head.error()};
  PartFile part;
  part.path_ = path;
  part.index_ = std::move(head->index);
  std::uint64_t offset = head->bytes;
  for (const PartEntry& entry : part.index_.entries) {
    part.offsets_.push_back(offset);
    offset += entry.stored_bytes;
  }
  if (offset > size_bytes)
    return no_part(path, fmt::format("is cut off: {} of {} bytes are there", size_bytes, offset));
  if (offset < size_bytes)
    return no_part(path, fmt::format("is damaged: {} bytes follow its end", size_bytes - offset));
  return part;
}

Result<std::string> PartFile::read_block(std::size_t entry) const {
  Result<Fd> fd = open_part(path_);
  if (!fd) return Error{fd.error()};
  const PartEntry& wanted = index_.entries.at(entry);
  std::string stored(wanted.stored_bytes, '\0');
  if (!read_fully_at(*fd, offsets_[entry], stored.data(), stored.size()))
    return no_part(path_, "was changed while it was read");
  if (XXH3_64bits(stored.data(), stored.size()) != wanted.checksum)
    return no_part(path_, fmt::format("is damaged: the recording {} of {} does not fit its checksum", wanted.session,
                                      wanted.host));
  return stored;
}

Result<ReducedRecording> PartFile::read_recording(std::size_t entry) const {
  const Result<std::string> stored = read_block(entry);
  if (!stored) return Error{stored.error()};
  Result<ReducedRecording> recording = read_stored(*stored, index_.entries.at(entry));
  if (!recording) return no_part(path_, recording.error());
  return recording;
}

bool may_be_part(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

}  // namespace whyrss
