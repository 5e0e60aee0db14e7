#include "recording/frame_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include <zstd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "support/file.h"

namespace whyrss {
namespace {

using trace::FileHeader;
using trace::FrameHeader;
using trace::kFrameMagic;
using trace::kMaxFrameBytes;

// Frames are written while the job runs: level 1 costs about 2 ns per byte and is within 15 % of 3.
constexpr int kCompressionLevel = 1;

constexpr std::size_t kFileHashedBytes = offsetof(FileHeader, checksum);
constexpr std::size_t kFrameHashedBytes = offsetof(FrameHeader, checksum);

std::uint64_t file_checksum(const FileHeader& header) { return XXH3_64bits(&header, kFileHashedBytes); }

std::uint64_t frame_checksum(const FrameHeader& header, std::span<const std::byte> stored) {
  return XXH3_64bits_withSeed(stored.data(), stored.size(), XXH3_64bits(&header, kFrameHashedBytes));
}

// False with errno set; on a short write too, as ENOSPC.
bool write_at(int fd, std::span<const std::byte> bytes, std::uint64_t offset) {
  ssize_t wrote = 0;
  do {
    wrote = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
  } while (wrote < 0 && errno == EINTR);
  if (wrote == static_cast<ssize_t>(bytes.size())) return true;
  if (wrote >= 0) errno = ENOSPC;
  return false;
}

}  // namespace

Result<FrameWriter> FrameWriter::create(const std::string& path, const FileIdentity& identity) {
  FrameWriter writer;
  writer.path_ = path;
  writer.fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (writer.fd_ < 0) return system_error("cannot create", path);
  FileHeader header{.magic = trace::kMagic,
                    .version = trace::kFormatVersion,
                    .kind = identity.kind,
                    .session_high = identity.session.high,
                    .session_low = identity.session.low,
                    .pid = identity.pid,
                    .reserved = 0,
                    .start_ticks = identity.start_ticks,
                    .reserved2 = 0,
                    .checksum = 0};
  header.checksum = file_checksum(header);
  if (!write_at(writer.fd_, std::as_bytes(std::span(&header, 1)), 0)) {
    Error error = system_error("cannot write", path);
    unlink(path.c_str());
    return error;
  }
  writer.size_bytes_ = sizeof header;
  return writer;
}

FrameWriter::FrameWriter(FrameWriter&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      size_bytes_(std::exchange(other.size_bytes_, 0)),
      path_(std::move(other.path_)) {}

FrameWriter& FrameWriter::operator=(FrameWriter&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(size_bytes_, other.size_bytes_);
  std::swap(path_, other.path_);
  return *this;
}

FrameWriter::~FrameWriter() {
  if (fd_ >= 0) close(fd_);
}

Status FrameWriter::append(trace::FrameKind kind, std::uint64_t time_ns, std::span<const std::byte> payload) {
  if (fd_ < 0) return Error{"cannot append to a recording file that is not open"};
  if (payload.size() > kMaxFrameBytes)
    return Error{fmt::format("cannot append {} bytes to {}: more than a frame holds", payload.size(), path_)};
  std::vector<std::byte> bytes(sizeof(FrameHeader) + ZSTD_compressBound(payload.size()));
  // Most frames are small: making a context for each would cost more than compressing it.
  thread_local const std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> context(ZSTD_createCCtx(), &ZSTD_freeCCtx);
  if (!context) return Error{"no memory to compress with"};
  const std::size_t stored =
      ZSTD_compressCCtx(context.get(), bytes.data() + sizeof(FrameHeader), bytes.size() - sizeof(FrameHeader),
                        payload.data(), payload.size(), kCompressionLevel);
  if (ZSTD_isError(stored) != 0)
    return Error{fmt::format("cannot compress for {}: {}", path_, ZSTD_getErrorName(stored))};
  bytes.resize(sizeof(FrameHeader) + stored);
  FrameHeader header{.magic = kFrameMagic,
                     .kind = kind,
                     .reserved = 0,
                     .stored_bytes = static_cast<std::uint32_t>(stored),
                     .raw_bytes = static_cast<std::uint32_t>(payload.size()),
                     .time_ns = time_ns,
                     .checksum = 0};
  header.checksum = frame_checksum(header, std::span(bytes).subspan(sizeof header));
  std::memcpy(bytes.data(), &header, sizeof header);
  if (!write_at(fd_, bytes, size_bytes_)) {
    Error error = system_error("cannot append to", path_);
    // Even if the cut fails, the next frame is written over the torn one.
    if (ftruncate(fd_, static_cast<off_t>(size_bytes_)) != 0) error.message += " (and cannot cut it back)";
    return error;
  }
  size_bytes_ += bytes.size();
  return Done{};
}

namespace {

class FrameParser {
 public:
  explicit FrameParser(std::span<const std::byte> bytes) : bytes_(bytes) {}

  void parse_into(FrameFile& file) {
    std::size_t at = sizeof(FileHeader);
    while (at < bytes_.size()) {
      const std::size_t taken = parse_frame(at, file);
      if (taken > 0) {
        at += taken;
        continue;
      }
      const std::size_t next = next_whole_frame(at + 1);
      if (next == bytes_.size()) {
        // Nothing whole follows: a torn last frame, unless its length says that it should be all here.
        file.cut_short = !claims_to_fit(at);
        if (!file.cut_short) file.damaged_bytes += bytes_.size() - at;
        return;
      }
      file.damaged_bytes += next - at;
      at = next;
    }
  }

 private:
  [[nodiscard]] bool read_header(std::size_t at, FrameHeader& header) const {
    if (bytes_.size() - at < sizeof header) return false;
    std::memcpy(&header, bytes_.data() + at, sizeof header);
    return header.magic == kFrameMagic;
  }

  [[nodiscard]] bool claims_to_fit(std::size_t at) const {
    FrameHeader header{};
    return bytes_.size() - at >= sizeof header &&
           (!read_header(at, header) || header.stored_bytes <= bytes_.size() - at - sizeof header);
  }

  [[nodiscard]] bool is_whole(std::size_t at, FrameHeader& header) const {
    if (!read_header(at, header)) return false;
    if (header.raw_bytes > kMaxFrameBytes || header.stored_bytes > bytes_.size() - at - sizeof header) return false;
    return header.checksum == frame_checksum(header, bytes_.subspan(at + sizeof header, header.stored_bytes));
  }

  // Bytes of the frame at `at`, 0 when there is none.
  std::size_t parse_frame(std::size_t at, FrameFile& file) const {
    FrameHeader header{};
    if (!is_whole(at, header)) return 0;
    const auto stored = bytes_.subspan(at + sizeof header, header.stored_bytes);
    // Checked before the buffer is made: the length is the file's word only.
    if (ZSTD_getFrameContentSize(stored.data(), stored.size()) != header.raw_bytes) return 0;
    RawFrame frame{.kind = header.kind, .time_ns = header.time_ns, .payload = {}};
    frame.payload.resize(header.raw_bytes);
    const std::size_t raw = ZSTD_decompress(frame.payload.data(), frame.payload.size(), stored.data(), stored.size());
    if (ZSTD_isError(raw) != 0 || raw != header.raw_bytes) return 0;
    file.frames.push_back(std::move(frame));
    return sizeof header + header.stored_bytes;
  }

  [[nodiscard]] std::size_t next_whole_frame(std::size_t from) {
    for (std::size_t at = from; at < bytes_.size(); ++at) {
      const void* hit = memmem(bytes_.data() + at, bytes_.size() - at, &kFrameMagic, sizeof kFrameMagic);
      if (hit == nullptr) break;
      at = static_cast<std::size_t>(static_cast<const std::byte*>(hit) - bytes_.data());
      FrameHeader header{};
      if (!read_header(at, header) || header.stored_bytes > resync_bytes_left_) continue;
      resync_bytes_left_ -= header.stored_bytes;
      if (is_whole(at, header)) return at;
    }
    return bytes_.size();
  }

  std::span<const std::byte> bytes_;
  // Bounds the hashing of false frames: bytes that were made to look like many of them must not take
  // quadratic time.
  std::uint64_t resync_bytes_left_ = bytes_.size() * 16 + kMaxFrameBytes;
};

}  // namespace

Result<FrameFile> parse_frame_file(std::span<const std::byte> bytes, const std::string& name) {
  FileHeader header{};
  if (bytes.size() < sizeof header)
    return Error{fmt::format("{} is no whyrss recording file: it has only {} bytes", name, bytes.size())};
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != trace::kMagic) return Error{fmt::format("{} is no whyrss recording file", name)};
  if (header.version < trace::kOldestReadableVersion || header.version > trace::kFormatVersion)
    return Error{fmt::format("{} has format version {}; this whyrss reads {} to {}", name, header.version,
                             trace::kOldestReadableVersion, trace::kFormatVersion)};
  if (header.checksum != file_checksum(header)) return Error{fmt::format("the header of {} is damaged", name)};
  FrameFile file;
  file.identity = {.kind = header.kind,
                   .session = {.high = header.session_high, .low = header.session_low},
                   .pid = header.pid,
                   .start_ticks = header.start_ticks};
  FrameParser(bytes).parse_into(file);
  return file;
}

}  // namespace whyrss
