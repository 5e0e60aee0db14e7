// Bytes to parse frames from: in memory, or in a file of which a window is held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "support/file.h"
#include "support/folder.h"
#include "support/result.h"

namespace whyrss {

class FrameSource {
 public:
  FrameSource() = default;
  FrameSource(const FrameSource&) = delete;
  FrameSource& operator=(const FrameSource&) = delete;
  FrameSource(FrameSource&&) = default;
  FrameSource& operator=(FrameSource&&) = default;
  virtual ~FrameSource() = default;

  // As it was when the source was opened.
  [[nodiscard]] virtual std::uint64_t size_bytes() const = 0;
  // Fewer bytes where the source ends, or cannot be read. Valid until the next call.
  virtual std::span<const std::byte> view(std::uint64_t offset, std::size_t bytes) = 0;
};

class MemorySource final : public FrameSource {
 public:
  explicit MemorySource(std::span<const std::byte> bytes) : bytes_(bytes) {}
  [[nodiscard]] std::uint64_t size_bytes() const override { return bytes_.size(); }
  std::span<const std::byte> view(std::uint64_t offset, std::size_t bytes) override;

 private:
  std::span<const std::byte> bytes_;
};

// Reads, and does not map: the file may become shorter meanwhile.
class FileSource final : public FrameSource {
 public:
  static Result<FileSource> open(const Folder& folder, const std::string& name);
  [[nodiscard]] std::uint64_t size_bytes() const override { return size_bytes_; }
  std::span<const std::byte> view(std::uint64_t offset, std::size_t bytes) override;

 private:
  Fd fd_;
  std::uint64_t size_bytes_ = 0;
  std::vector<std::byte> window_;
  std::uint64_t window_at_ = 0;
};

// All of `bytes`, or false.
bool read_at(int fd, std::span<std::byte> bytes, std::uint64_t offset);

}  // namespace whyrss
