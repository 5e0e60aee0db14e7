#include "collect/loop/process_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "support/file.h"

namespace whyrss {

Status ProcessFile::make() {
  if (is_open_) return Done{};
  const std::string directory = std::filesystem::path(path_).parent_path().string();
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) return system_error("cannot create", directory);
  auto writer = FrameWriter::create(path_, identity_);
  if (!writer) {
    rmdir(directory.c_str());  // unless the other file lies there
    return writer.failure();
  }
  writer_ = std::move(*writer);
  is_open_ = true;
  return Done{};
}

Status ProcessFile::append(trace::FrameKind kind, std::uint64_t time_ns, std::span<const std::byte> payload,
                           std::span<const std::size_t> parts) {
  if (Status made = make(); !made) return made;
  return writer_.append(kind, time_ns, payload, parts);
}

std::optional<std::uint64_t> ProcessFile::frame_count() const {
  return is_open_ ? std::optional(writer_.frame_count()) : std::nullopt;
}

}  // namespace whyrss
