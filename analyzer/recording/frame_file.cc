#include "recording/frame_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "recording/frame_order.h"
#include "recording/frame_source.h"
#include "support/file.h"

namespace whyrss {
namespace {

using trace::FileHeader;
using trace::FrameHeader;
using trace::kFrameMagic;
using trace::kMaxFrameBytes;

// Frames are written while the job runs: level 1 costs about 2 ns per byte and is within 15 % of 3. Planes of events
// are mostly noise of few values, in which a search for repetitions finds many that are too short to be of use: there
// it tries few places, for long ones, and values take as few bits as their frequency allows, which zstd would not do
// at such a level by itself.
constexpr int kCompressionLevel = 1, kPlanesLevel = -3, kLongRepetition = 7;
constexpr ZSTD_cParameter kLiteralCompression = ZSTD_c_experimentalParam5;  // ZSTD_c_literalCompressionMode

constexpr std::size_t kKeptBytes = 1024 * 1024;

// The header of a walk or of what was read with it.
constexpr std::size_t kFrontBytes = sizeof(trace::WalkHeader);
static_assert(kFrontBytes >= sizeof(trace::LivenessHeader));

constexpr std::size_t kFileHashedBytes = offsetof(FileHeader, checksum);
constexpr std::size_t kFrameHashedBytes = offsetof(FrameHeader, checksum);

std::uint64_t file_checksum(const FileHeader& header) { return XXH3_64bits(&header, kFileHashedBytes); }

// `seed`: the checksum of the file's header, so that a frame of another file is none.
std::uint64_t frame_checksum(const FrameHeader& header, std::span<const std::byte> stored, std::uint64_t seed) {
  const std::uint64_t of_header = XXH3_64bits_withSeed(&header, kFrameHashedBytes, seed);
  return XXH3_64bits_withSeed(stored.data(), stored.size(), of_header);
}

bool write_at(int fd, std::span<const std::byte> bytes, std::uint64_t offset) {
  return write_fully_at(fd, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, offset);
}

}  // namespace

Result<FrameWriter> FrameWriter::create(const std::string& path, const FileIdentity& identity) {
  Fd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd) return system_error("cannot create", path);
  auto writer = start(std::move(fd), path, identity);
  if (!writer) unlink(path.c_str());
  return writer;
}

Result<FrameWriter> FrameWriter::start(Fd fd, const std::string& path, const FileIdentity& identity) {
  FrameWriter writer;
  writer.path_ = path;
  writer.fd_ = fd.release();
  FileHeader header{.magic = trace::kMagic,
                    .version = trace::kFormatVersion,
                    .kind = identity.kind,
                    .session_high = identity.session.high,
                    .session_low = identity.session.low,
                    .pid = identity.pid,
                    .reserved = 0,
                    .start_ticks = identity.start_ticks,
                    .frame_count = identity.frame_count,
                    .checksum = 0};
  header.checksum = file_checksum(header);
  if (!write_at(writer.fd_, std::as_bytes(std::span(&header, 1)), 0)) return system_error("cannot write", path);
  writer.size_bytes_ = sizeof header;
  writer.seed_ = header.checksum;
  return writer;
}

FrameWriter::FrameWriter(FrameWriter&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      size_bytes_(std::exchange(other.size_bytes_, 0)),
      frame_count_(std::exchange(other.frame_count_, 0)),
      seed_(std::exchange(other.seed_, 0)),
      path_(std::move(other.path_)) {}

FrameWriter& FrameWriter::operator=(FrameWriter&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(size_bytes_, other.size_bytes_);
  std::swap(frame_count_, other.frame_count_);
  std::swap(seed_, other.seed_);
  std::swap(path_, other.path_);
  return *this;
}

FrameWriter::~FrameWriter() {
  if (fd_ >= 0) close(fd_);
}

namespace {

// Null where there is no memory.
ZSTD_CCtx* compressor_for(trace::FrameKind kind) {
  // Most frames are small: making a context for each would cost more than compressing it.
  thread_local const std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> context(ZSTD_createCCtx(), &ZSTD_freeCCtx);
  if (!context) return nullptr;
  ZSTD_CCtx_reset(context.get(), ZSTD_reset_session_and_parameters);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, kCompressionLevel);
  if (kind == trace::FrameKind::blocks) {
    ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, kPlanesLevel);
    ZSTD_CCtx_setParameter(context.get(), ZSTD_c_minMatch, kLongRepetition);
    ZSTD_CCtx_setParameter(context.get(), kLiteralCompression, 1);  // a library that knows it not stores more bytes
  }
  return context.get();
}

}  // namespace

Status FrameWriter::append(trace::FrameKind kind, std::uint64_t time_ns, std::span<const std::byte> payload,
                           std::span<const std::size_t> parts) {
  const std::size_t all = payload.size();
  if (parts.empty()) parts = std::span(&all, 1);
  if (fd_ < 0) return Error{"cannot append to a recording file that is not open"};
  if (payload.size() > kMaxFrameBytes)
    return Error{fmt::format("cannot append {} bytes to {}: more than a frame holds", payload.size(), path_)};
  std::size_t bound = sizeof(FrameHeader);
  for (const std::size_t part : parts) bound += ZSTD_compressBound(part);
  // Kept for the next frame, unless that would be a large one: fresh pages cost as much as compressing into them.
  thread_local std::vector<std::byte> kept;
  std::vector<std::byte> large(bound > kKeptBytes ? bound : 0);
  if (large.empty() && kept.size() < bound) kept.resize(bound);
  const std::span<std::byte> bytes = large.empty() ? std::span(kept) : std::span(large);
  ZSTD_CCtx* context = compressor_for(kind);
  if (context == nullptr) return Error{"no memory to compress with"};
  std::size_t stored = 0, begin = 0;
  for (const std::size_t part : parts) {
    const auto to = bytes.subspan(sizeof(FrameHeader) + stored);
    const std::size_t added = ZSTD_compress2(context, to.data(), to.size(), payload.data() + begin, part);
    if (ZSTD_isError(added) != 0)
      return Error{fmt::format("cannot compress for {}: {}", path_, ZSTD_getErrorName(added))};
    stored += added;
    begin += part;
  }
  const auto frame = bytes.first(sizeof(FrameHeader) + stored);
  FrameHeader header{.magic = kFrameMagic,
                     .kind = kind,
                     .reserved = 0,
                     .stored_bytes = static_cast<std::uint32_t>(stored),
                     .raw_bytes = static_cast<std::uint32_t>(payload.size()),
                     .time_ns = time_ns,
                     .number = frame_count_,
                     .checksum = 0};
  header.checksum = frame_checksum(header, frame.subspan(sizeof header), seed_);
  std::memcpy(frame.data(), &header, sizeof header);
  if (!write_at(fd_, frame, size_bytes_)) {
    Error error = system_error("cannot append to", path_);
    // Even if the cut fails, the next frame is written over the torn one.
    if (ftruncate(fd_, static_cast<off_t>(size_bytes_)) != 0) error.message += " (and cannot cut it back)";
    return error;
  }
  size_bytes_ += frame.size();
  ++frame_count_;
  return Done{};
}

namespace {

// Of the zstd frames that `stored` consists of, all together; more than any payload has when it is damaged.
std::uint64_t content_bytes(std::span<const std::byte> stored) {
  std::uint64_t sum = 0;
  do {
    const std::uint64_t content = ZSTD_getFrameContentSize(stored.data(), stored.size());
    const std::size_t size = ZSTD_findFrameCompressedSize(stored.data(), stored.size());
    if (content > kMaxFrameBytes || ZSTD_isError(size) != 0) return kMaxFrameBytes + 1;
    sum += content;
    stored = stored.subspan(size);
  } while (!stored.empty() && sum <= kMaxFrameBytes);
  return sum;
}

// All of `stored` into all of `payload`.
bool decompress_into(std::span<std::byte> payload, std::span<const std::byte> stored) {
  // Making one for each of many small frames would take longer than reading them.
  thread_local const std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> context(ZSTD_createDCtx(), &ZSTD_freeDCtx);
  if (!context) return false;
  const std::size_t raw =
      ZSTD_decompressDCtx(context.get(), payload.data(), payload.size(), stored.data(), stored.size());
  return ZSTD_isError(raw) == 0 && raw == payload.size();
}

// Decompresses a payload, or with `front_only` what can be read of it by itself.
std::optional<std::vector<std::byte>> decompress(std::span<const std::byte> stored, std::size_t raw_bytes,
                                                 bool front_only, std::size_t slack_bytes) {
  // Checked before the buffer is made: the length is the file's word only.
  if (content_bytes(stored) != raw_bytes) return std::nullopt;
  if (front_only) {
    stored = stored.first(ZSTD_findFrameCompressedSize(stored.data(), stored.size()));
    raw_bytes = static_cast<std::size_t>(ZSTD_getFrameContentSize(stored.data(), stored.size()));
  }
  std::vector<std::byte> payload(raw_bytes + slack_bytes);
  if (!decompress_into(std::span(payload).first(raw_bytes), stored)) return std::nullopt;
  return payload;
}

// Of a frame that is left in its file. A segment's checksum is right and its size is known, which must do.
std::optional<std::vector<std::byte>> front_of(trace::FrameKind kind, std::span<const std::byte> stored,
                                               std::size_t raw_bytes) {
  if (kind == trace::FrameKind::blocks) return decompress(stored, raw_bytes, true, 0);
  if (kind == trace::FrameKind::segment)
    return content_bytes(stored) == raw_bytes ? std::optional<std::vector<std::byte>>(std::in_place) : std::nullopt;
  const auto payload = decompress(stored, raw_bytes, false, 0);
  if (!payload) return std::nullopt;
  return std::vector(payload->begin(), payload->begin() + static_cast<long>(std::min(payload->size(), kFrontBytes)));
}

// Of a long job these are more than fits into memory.
bool is_large_kind(trace::FrameKind kind) {
  using enum trace::FrameKind;
  return kind == segment || kind == blocks || kind == walk || kind == liveness;
}

class FrameParser {
 public:
  FrameParser(FrameSource& source, const FileHeader& file, bool leave_large)
      : source_(&source),
        seed_(file.checksum),
        leave_large_(leave_large),
        resync_bytes_left_(kHashedPerByte * std::min<std::uint64_t>(source.size_bytes(), kMaxFrameBytes)) {}

  void parse_into(FrameFile& file) {
    const std::uint64_t size_bytes = source_->size_bytes();
    std::uint64_t at = sizeof(FileHeader);
    while (at < size_bytes) {
      const std::uint64_t taken = parse_frame(at, file);
      if (taken > 0) {
        at += taken;
        scan_bytes_left_ += taken;
        resync_bytes_left_ += kHashedPerByte * taken;
        continue;
      }
      const std::uint64_t next = next_whole_frame(at + 1);
      if (next == size_bytes) {
        // Nothing whole follows: a torn last frame, unless its length says that it should be all here.
        file.cut_short = !claims_to_fit(at);
        if (!file.cut_short) file.damaged_bytes += size_bytes - at;
        return;
      }
      file.damaged_bytes += next - at;
      at = next;
    }
  }

 private:
  [[nodiscard]] bool read_header(std::uint64_t at, FrameHeader& header) {
    const auto bytes = source_->view(at, sizeof header);
    if (bytes.size() < sizeof header) return false;
    std::memcpy(&header, bytes.data(), sizeof header);
    return header.magic == kFrameMagic;
  }

  [[nodiscard]] bool claims_to_fit(std::uint64_t at) {
    FrameHeader header{};
    const std::uint64_t left = source_->size_bytes() - at;
    return left >= sizeof(FrameHeader) &&
           (!read_header(at, header) || header.stored_bytes <= left - sizeof(FrameHeader));
  }

  // The stored payload of the frame at `at`; nothing when there is none.
  [[nodiscard]] std::optional<std::span<const std::byte>> whole_frame(std::uint64_t at, FrameHeader& header) {
    if (!read_header(at, header)) return std::nullopt;
    const std::uint64_t left = source_->size_bytes() - at - sizeof(FrameHeader);
    if (header.raw_bytes > kMaxFrameBytes || header.stored_bytes > left) return std::nullopt;
    const auto stored = source_->view(at + sizeof(FrameHeader), header.stored_bytes);
    if (stored.size() != header.stored_bytes || header.checksum != frame_checksum(header, stored, seed_))
      return std::nullopt;
    return stored;
  }

  // Bytes of the frame at `at`, 0 when there is none.
  std::uint64_t parse_frame(std::uint64_t at, FrameFile& file) {
    FrameHeader header{};
    const auto stored = whole_frame(at, header);
    if (!stored) return 0;
    const bool leave = leave_large_ && is_large_kind(header.kind);
    auto payload =
        leave ? front_of(header.kind, *stored, header.raw_bytes) : decompress(*stored, header.raw_bytes, false, 0);
    if (!payload) return 0;
    file.frames.push_back({.kind = header.kind,
                           .time_ns = header.time_ns,
                           .payload = std::move(*payload),
                           .stored_at = leave ? at + sizeof(FrameHeader) : 0,
                           .stored_bytes = header.stored_bytes,
                           .raw_bytes = header.raw_bytes,
                           .number = header.number});
    return sizeof(FrameHeader) + header.stored_bytes;
  }

  [[nodiscard]] std::uint64_t next_whole_frame(std::uint64_t from) {
    constexpr std::size_t kScanBytes = 64 * 1024;
    const std::uint64_t size_bytes = source_->size_bytes();
    for (std::uint64_t at = from; at < size_bytes;) {
      if (scan_bytes_left_ < kScanBytes) break;
      const auto bytes = source_->view(at, kScanBytes);
      const void* hit = bytes.empty() ? nullptr : memmem(bytes.data(), bytes.size(), &kFrameMagic, sizeof kFrameMagic);
      if (hit == nullptr) {
        if (bytes.size() < kScanBytes) break;
        at += bytes.size() - sizeof kFrameMagic + 1;
        scan_bytes_left_ -= bytes.size();
        continue;
      }
      const auto skipped = static_cast<std::uint64_t>(static_cast<const std::byte*>(hit) - bytes.data());
      at += skipped;
      scan_bytes_left_ -= skipped;
      FrameHeader header{};
      if (read_header(at, header) && header.stored_bytes <= resync_bytes_left_) {
        resync_bytes_left_ -= header.stored_bytes;
        if (whole_frame(at, header)) return at;
      }
      ++at;
    }
    return size_bytes;
  }

  FrameSource* source_;
  std::uint64_t seed_;
  bool leave_large_;
  static constexpr std::uint64_t kHashedPerByte = 16;

  // Bounds the hashing of false frames: bytes that were made to look like many of them must not take
  // quadratic time.
  std::uint64_t resync_bytes_left_;
  // And the search behind damage: it goes over the largest frame, and as much again as whole frames were read. A
  // sparse file of many GiB is not read to its end.
  std::uint64_t scan_bytes_left_ = 2ULL * kMaxFrameBytes;
};

Result<FrameFile> parse(FrameSource& source, const std::string& name, bool leave_large) {
  FileHeader header{};
  const auto bytes = source.view(0, sizeof header);
  if (bytes.size() < sizeof header)
    return Error{fmt::format("{} is no whyrss recording file: it has only {} bytes", name, bytes.size())};
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != trace::kMagic) return Error{fmt::format("{} is no whyrss recording file", name)};
  if (header.version != trace::kFormatVersion)
    return Error{
        fmt::format("{} has format version {}; this whyrss reads {}", name, header.version, trace::kFormatVersion)};
  if (header.checksum != file_checksum(header)) return Error{fmt::format("the header of {} is damaged", name)};
  FrameFile file;
  file.identity = {.kind = header.kind,
                   .session = {.high = header.session_high, .low = header.session_low},
                   .pid = header.pid,
                   .start_ticks = header.start_ticks,
                   .frame_count = header.frame_count};
  FrameParser(source, header, leave_large).parse_into(file);
  put_in_order(file);
  return file;
}

}  // namespace

Result<FrameFile> parse_frame_file(std::span<const std::byte> bytes, const std::string& name) {
  MemorySource source(bytes);
  return parse(source, name, false);
}

Result<FrameFile> read_frame_file(const Folder& folder, const std::string& name) {
  auto source = FileSource::open(folder, name);
  if (!source) return Error{source.error()};
  auto file = parse(*source, folder.path_of(name), true);
  if (!file) return file;
  file->folder = folder;
  file->name = name;
  return file;
}

Result<FrameFile> read_frame_file(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const bool has_folder = slash != std::string::npos;
  const auto folder = Folder::open(has_folder ? path.substr(0, slash + 1) : ".");
  if (!folder) return Error{folder.error()};
  return read_frame_file(*folder, has_folder ? path.substr(slash + 1) : path);
}

Fd FrameFile::reopen() const {
  auto fd = folder ? folder.open_file(name) : Error{"not of a file"};
  return fd ? std::move(*fd) : Fd();
}

std::optional<std::vector<std::byte>> load_payload(const RawFrame& frame, int fd, std::size_t slack_bytes) {
  if (frame.stored_at == 0) {
    std::vector<std::byte> payload(frame.payload.size() + slack_bytes);
    std::ranges::copy(frame.payload, payload.begin());
    return payload;
  }
  std::vector<std::byte> stored(frame.stored_bytes);
  if (!read_at(fd, stored, frame.stored_at)) return std::nullopt;
  return decompress(stored, frame.raw_bytes, false, slack_bytes);
}

std::optional<std::span<const std::byte>> PayloadBuffer::load(const RawFrame& frame, int fd) {
  if (frame.stored_at == 0) return std::span(frame.payload);
  stored_.resize(frame.stored_bytes);
  if (!read_at(fd, stored_, frame.stored_at) || content_bytes(stored_) != frame.raw_bytes) return std::nullopt;
  if (capacity_bytes_ < frame.raw_bytes) {
    payload_ = std::make_unique_for_overwrite<std::byte[]>(frame.raw_bytes);
    capacity_bytes_ = frame.raw_bytes;
  }
  const std::span payload(payload_.get(), frame.raw_bytes);
  if (!decompress_into(payload, stored_)) return std::nullopt;
  return payload;
}

}  // namespace whyrss
