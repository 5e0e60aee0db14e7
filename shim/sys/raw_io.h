// System calls and text without libc's help: no errno, no allocation, no stdio, no hooks of our own.
// Everything here is async-signal-safe. Descriptors are O_CLOEXEC and closed at once by the caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "shim/trace/own_calls.h"

namespace whyrss::shim {

using trace::as_long;
using trace::is_raw_error;
using trace::own_syscall;
using trace::raw_syscall;

// An open descriptor that closes itself. Negative: -errno of the open.
class RawFile {
 public:
  // A descriptor that the caller has just got.
  explicit RawFile(long descriptor) noexcept : descriptor_(static_cast<int>(descriptor)) {}
  RawFile(const char* path, int flags) noexcept;
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;
  ~RawFile();
  explicit operator bool() const noexcept { return descriptor_ >= 0; }
  [[nodiscard]] int number() const noexcept { return descriptor_; }
  // Bytes read at `offset`, 0 at the end or on error.
  [[nodiscard]] std::size_t read_at(std::span<char> into, std::uint64_t offset) const noexcept;
  // Reads until `into` is full or the file ends (for /proc files, which come in pieces).
  [[nodiscard]] std::size_t read_all(std::span<char> into) const noexcept;

 private:
  trace::KernelVisit visit_;  // until it is closed again
  int descriptor_;
};

// First bytes of a file; empty when it cannot be read.
std::string_view read_file(const char* path, std::span<char> buffer) noexcept;

// Text of bounded length; what does not fit is cut off. Always NUL-terminated. Too large for the stack of a
// function that may run in a thread of 16 KiB; zero-filled memory is an empty one.
class Text {
 public:
  Text& add(std::string_view piece) noexcept;
  Text& add(std::uint64_t number) noexcept;
  void clear() noexcept {
    bytes_[0] = '\0';
    size_ = 0;
    cut_ = false;
  }
  [[nodiscard]] const char* c_str() const noexcept { return bytes_; }
  [[nodiscard]] std::string_view view() const noexcept { return {bytes_, size_}; }
  [[nodiscard]] bool cut() const noexcept { return cut_; }

 private:
  char bytes_[4352] = {};
  std::size_t size_ = 0;
  bool cut_ = false;
};

// Parses a decimal number at the start of `text` and removes it; 0 without digits.
std::uint64_t take_number(std::string_view& text) noexcept;

// The one message the shim may print: "whyrss: <what>: <detail>" on stderr.
void complain(std::string_view what, std::string_view detail) noexcept;

// Pages of this process that are resident, and of them those of files and shared memory (fields 2 and 3 of
// /proc/self/statm); 0 when unreadable.
struct ResidentPages {
  std::uint64_t all, shared;
};
ResidentPages read_resident_pages() noexcept;
// Of these, all.
std::uint64_t resident_pages() noexcept;

// Of this process, all threads, since it was born.
std::uint64_t minor_faults() noexcept;

// Field 22 of /proc/self/stat: clock ticks after boot at which this process started.
std::uint64_t process_start_ticks() noexcept;

// Field 20: its threads, the first one also when it has ended before the others. 0 when unreadable.
std::uint64_t thread_count() noexcept;

}  // namespace whyrss::shim
