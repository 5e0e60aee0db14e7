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
  // `is_lone`: nobody else maps its private pages (PageWalk), so that many places can be read at once.
  explicit TargetMemory(pid_t pid, bool is_lone = false);

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
  // As many of the first as can be read at once.
  std::size_t read_many(std::span<const std::uint64_t> addresses, std::size_t bytes_each,
                        std::span<std::byte> into) const;

  pid_t pid_;
  bool is_lone_;
  Fd memory_;
};

}  // namespace whyrss
