#include "support/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>
#include <memory>

namespace whyrss {

void Fd::reset() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

Result<Mapping> Mapping::of(const Fd& fd, std::size_t size_bytes, const std::string& name) {
  void* address = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED) return system_error("cannot map", name);
  Mapping mapping;
  mapping.address_ = address;
  mapping.size_bytes_ = size_bytes;
  return mapping;
}

Mapping::~Mapping() {
  if (address_ != nullptr) munmap(address_, size_bytes_);
}

Error system_error(std::string_view what, std::string_view path) {
  const int number = errno;
  Error error{fmt::format("{} {}: {}", what, path, std::strerror(number)), number};
  errno = number;
  return error;
}

Result<std::string> read_at_most(const Fd& fd, std::size_t most_bytes, const std::string& name) {
  std::string text;
  // Not in the text: making room there would zero it, for each small file of /proc. Nor on the stack or in the thread's
  // static storage, which is part of the stack: threads may have a small one.
  constexpr std::size_t kBufferBytes = 64UL * 1024;
  thread_local const auto bytes = std::make_unique_for_overwrite<char[]>(kBufferBytes);
  while (true) {
    const ssize_t got = read(fd.get(), bytes.get(), kBufferBytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("cannot read", name);
    if (got == 0) return text;
    text.append(bytes.get(), static_cast<std::size_t>(got));
    if (text.size() > most_bytes)
      return Error{fmt::format("{} is longer than {} bytes: it was not read", name, most_bytes)};
  }
}

Result<std::string> read_all(int fd, const std::string& name) {
  Fd lent(fd);
  auto text = read_at_most(lent, SIZE_MAX, name);
  lent.release();
  return text;
}

Result<std::string> read_file(const std::string& path) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return system_error("cannot open", path);
  return read_all(fd.get(), path);
}

Result<std::string> read_line_file(const std::string& path) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return system_error("cannot open", path);
  std::array<char, 4096> bytes;
  ssize_t got = 0;
  do {
    got = read(fd.get(), bytes.data(), bytes.size());
  } while (got < 0 && errno == EINTR);
  if (got < 0) return system_error("cannot read", path);
  return std::string(bytes.data(), static_cast<std::size_t>(got));
}

bool write_fully(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t wrote = write(fd, text.data(), text.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(wrote));
  }
  return true;
}

// What is left after a short write is tried again: that gives the reason.
bool write_fully_at(int fd, std::string_view text, std::uint64_t offset) {
  while (!text.empty()) {
    const ssize_t wrote = pwrite(fd, text.data(), text.size(), static_cast<off_t>(offset));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote == 0) errno = ENOSPC;
    if (wrote <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(wrote));
    offset += static_cast<std::uint64_t>(wrote);
  }
  return true;
}

Status write_file_atomically(const std::string& path, std::string_view text) {
  const std::string temporary = path + ".new";
  const Fd fd(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return system_error("cannot write", temporary);
  if (!write_fully(fd.get(), text)) {
    Error error = system_error("cannot write", temporary);
    unlink(temporary.c_str());
    return error;
  }
  if (rename(temporary.c_str(), path.c_str()) != 0) return system_error("cannot write", path);
  return Done{};
}

std::string read_link(const std::string& path) {
  std::array<char, PATH_MAX> buffer{};
  const ssize_t size = readlink(path.c_str(), buffer.data(), buffer.size());
  return size < 0 ? std::string() : std::string(buffer.data(), static_cast<std::size_t>(size));
}

}  // namespace whyrss
