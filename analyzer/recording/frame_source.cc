#include "recording/frame_source.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace whyrss {
namespace {

constexpr std::size_t kWindowBytes = 2 * 1024 * 1024;

// How many could be read.
std::size_t read_some(int fd, std::span<std::byte> bytes, std::uint64_t offset) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

}  // namespace

bool read_at(int fd, std::span<std::byte> bytes, std::uint64_t offset) {
  return read_some(fd, bytes, offset) == bytes.size();
}

std::span<const std::byte> MemorySource::view(std::uint64_t offset, std::size_t bytes) {
  if (offset >= bytes_.size()) return {};
  const auto rest = bytes_.subspan(static_cast<std::size_t>(offset));
  return rest.first(std::min(bytes, rest.size()));
}

Result<FileSource> FileSource::open(const Folder& folder, const std::string& name) {
  auto fd = folder.open_file(name);
  if (!fd) return Error{fd.error()};
  FileSource source;
  source.fd_ = std::move(*fd);
  source.size_bytes_ = status_of(source.fd_).size_bytes;
  return source;
}

std::span<const std::byte> FileSource::view(std::uint64_t offset, std::size_t bytes) {
  if (offset >= size_bytes_) return {};
  bytes = static_cast<std::size_t>(std::min<std::uint64_t>(bytes, size_bytes_ - offset));
  const bool there = offset >= window_at_ && offset + bytes <= window_at_ + window_.size();
  if (!there) {
    const std::uint64_t wanted = std::min<std::uint64_t>(std::max(bytes, kWindowBytes), size_bytes_ - offset);
    window_.resize(static_cast<std::size_t>(wanted));
    window_at_ = offset;
    window_.resize(read_some(fd_.get(), window_, offset));
    bytes = std::min(bytes, window_.size());
  }
  return std::span(window_).subspan(static_cast<std::size_t>(offset - window_at_), bytes);
}

}  // namespace whyrss
