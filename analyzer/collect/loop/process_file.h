// One of the two files of a process in the recording, which also has its place where it cannot be made yet.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "recording/frame_file.h"
#include "support/result.h"

namespace whyrss {

class ProcessFile {
 public:
  ProcessFile(std::string path, const FileIdentity& identity) : path_(std::move(path)), identity_(identity) {
    static_cast<void>(make());  // else with the first frame
  }

  // Makes the file, and the directory that it lies in, when that has failed so far.
  Status append(trace::FrameKind kind, std::uint64_t time_ns, std::span<const std::byte> payload,
                std::span<const std::size_t> parts = {});
  // The same without a frame.
  Status make();
  [[nodiscard]] const std::string& path() const { return path_; }
  // Nothing while it could not be made. A frame that was not written is not counted, and the next one has its number.
  [[nodiscard]] std::optional<std::uint64_t> frame_count() const;
  [[nodiscard]] std::uint64_t size_bytes() const { return is_open_ ? writer_.size_bytes() : 0; }

 private:
  std::string path_;
  FileIdentity identity_;
  FrameWriter writer_;
  bool is_open_ = false;
};

}  // namespace whyrss
