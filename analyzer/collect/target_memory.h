// Reads the memory of another process. Allowed as ptrace(2) is: same user, and under Yama 1 an ancestor or
// whom the target named (PR_SET_PTRACER). Changes nothing in it, also where its pages are shared since a fork.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "support/file.h"
#include "support/result.h"

namespace whyrss {

class TargetMemory {
 public:
  explicit TargetMemory(pid_t pid);

  // All of it, or an error.
  Status read(std::uint64_t address, std::span<std::byte> into) const;

  template <typename T>
  Result<T> read(std::uint64_t address) const {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    if (const Status done = read(address, std::as_writable_bytes(std::span(&value, 1))); !done)
      return Error{done.error()};
    return value;
  }

  // `bytes_each` bytes from each address, one after the other. What cannot be read (the page went away) is zero.
  [[nodiscard]] std::vector<std::byte> read_each(std::span<const std::uint64_t> addresses,
                                                 std::size_t bytes_each) const;
  // The same, into memory that is reused: `into` has as many bytes.
  void read_each(std::span<const std::uint64_t> addresses, std::size_t bytes_each, std::span<std::byte> into) const;

 private:
  pid_t pid_;
  Fd memory_;
};

}  // namespace whyrss
