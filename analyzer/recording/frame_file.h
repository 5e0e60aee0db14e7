// Files of checksummed, compressed frames (trace/recording_format.h): appending them so that a reader
// can never see half of one without noticing, and reading them as hostile bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shim/trace/pool.h"
#include "shim/trace/recording_format.h"
#include "support/folder.h"
#include "support/result.h"

namespace whyrss {

struct FileIdentity {
  trace::FileKind kind = trace::FileKind::events;
  trace::SessionId session{};
  std::uint32_t pid = 0;
  std::uint64_t start_ticks = 0;
  std::uint64_t frame_count = 0;  // known from the start; 0: it is not
};

// Appends frames and numbers them. Owns the fd. After a short write (full disk) it cuts the file back to the last
// whole frame and reports the error; later frames are tried again, so nothing already written is lost. The number of a
// frame that was not written goes to the next one: what is missing in a file was taken out of it later.
class FrameWriter {
 public:
  FrameWriter() = default;
  static Result<FrameWriter> create(const std::string& path, const FileIdentity& identity);
  // Of a new, empty file.
  static Result<FrameWriter> start(Fd fd, const std::string& path, const FileIdentity& identity);
  FrameWriter(FrameWriter&& other) noexcept;
  FrameWriter& operator=(FrameWriter&& other) noexcept;
  FrameWriter(const FrameWriter&) = delete;
  FrameWriter& operator=(const FrameWriter&) = delete;
  ~FrameWriter();

  // `parts`, when there are any, sum to the payload: each is compressed apart, and the first can be read without the
  // rest.
  Status append(trace::FrameKind kind, std::uint64_t time_ns, std::span<const std::byte> payload,
                std::span<const std::size_t> parts = {});
  [[nodiscard]] std::uint64_t size_bytes() const { return size_bytes_; }
  // Of those that were written.
  [[nodiscard]] std::uint64_t frame_count() const { return frame_count_; }

 private:
  int fd_ = -1;
  std::uint64_t size_bytes_ = 0, frame_count_ = 0, seed_ = 0;
  std::string path_;
};

struct RawFrame {
  trace::FrameKind kind{};
  std::uint64_t time_ns = 0;
  std::vector<std::byte> payload;  // of a frame that was left in its file, only its front, or nothing
  std::uint64_t stored_at = 0;     // 0: the payload is whole; else where in the file it is, compressed
  std::uint32_t stored_bytes = 0, raw_bytes = 0;
  std::uint64_t number = 0;  // in its file
};

struct FrameFile {
  FileIdentity identity;
  std::vector<RawFrame> frames;                  // by number, each once
  std::uint64_t repeated_frames = 0;             // were there more than once
  std::optional<std::uint64_t> first_misplaced;  // number of a frame that stood behind a later one
  std::uint64_t damaged_bytes = 0;               // skipped: bad checksum, or no frame there
  bool cut_short = false;                        // the last frame is not whole
  // Of read_frame_file(): where the payloads are that were left in the file.
  Folder folder;
  std::string name;
  [[nodiscard]] Fd reopen() const;
};

// Parses the bytes of a whole file. Fails only when it is no recording file of a readable version;
// everything after a good header that cannot be read is counted, not fatal.
Result<FrameFile> parse_frame_file(std::span<const std::byte> bytes, const std::string& name);

// The same of a file, of which only some MiB are in memory at a time. `segment`, `blocks`, `walk` and `liveness`
// frames, which may be larger than memory all together, are checked and left there, but for their front: the runs of
// blocks, the header of walks.
Result<FrameFile> read_frame_file(const Folder& folder, const std::string& name);
Result<FrameFile> read_frame_file(const std::string& path);

// The whole payload of a frame, with `slack_bytes` zeros behind it. `fd` is the reopened file, for frames that were
// left there. Nothing when it cannot be read any more.
std::optional<std::vector<std::byte>> load_payload(const RawFrame& frame, int fd, std::size_t slack_bytes);

// Reads the payloads of one frame after the other into the same memory.
class PayloadBuffer {
 public:
  // As load_payload() without slack. Valid until the next call, and as long as `frame`.
  std::optional<std::span<const std::byte>> load(const RawFrame& frame, int fd);

 private:
  std::vector<std::byte> stored_;
  std::unique_ptr<std::byte[]> payload_;
  std::size_t capacity_bytes_ = 0;
};

}  // namespace whyrss
