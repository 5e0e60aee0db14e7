// Descriptors and whole files, with one-line errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "support/result.h"

namespace whyrss {

// Owns a descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  [[nodiscard]] int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset();

 private:
  int fd_ = -1;
};

// Owns a shared, writable file mapping.
class Mapping {
 public:
  Mapping() = default;
  static Result<Mapping> of(const Fd& fd, std::size_t size_bytes, const std::string& name);
  Mapping(Mapping&& other) noexcept
      : address_(std::exchange(other.address_, nullptr)), size_bytes_(std::exchange(other.size_bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  [[nodiscard]] void* address() const { return address_; }
  [[nodiscard]] std::size_t size_bytes() const { return size_bytes_; }

 private:
  void* address_ = nullptr;
  std::size_t size_bytes_ = 0;
};

// "<what> <path>: <strerror(errno)>"
Error system_error(std::string_view what, std::string_view path);

// The whole file, also of /proc, where sizes are 0.
Result<std::string> read_file(const std::string& path);
Result<std::string> read_all(int fd, const std::string& name);
// Fails when there is more.
Result<std::string> read_at_most(const Fd& fd, std::size_t most_bytes, const std::string& name);
// What one read gives: all of a file of /proc that is a line, for half the price.
Result<std::string> read_line_file(const std::string& path);

// All or nothing: a reader sees the old text or the new one. No other user may read it.
Status write_file_atomically(const std::string& path, std::string_view text);

// Writes all of it; false on an error. For pipes and logs.
bool write_fully(int fd, std::string_view text);

// The same at that place of a file; errno says why not.
bool write_fully_at(int fd, std::string_view text, std::uint64_t offset);

// Target of a symbolic link, "" when it cannot be read.
std::string read_link(const std::string& path);

}  // namespace whyrss
