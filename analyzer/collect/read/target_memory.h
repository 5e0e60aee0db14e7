// Reads the memory of another process. Allowed as ptrace(2) is: same user, and under Yama 1 an ancestor or
// whom the target named (PR_SET_PTRACER). Changes nothing in it, also where its pages are shared since a fork.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "support/file.h"
#include "support/result.h"

namespace whyrss {

// How many forks a process had begun, as it counts them itself.
struct ForkCount {
  const std::atomic<std::uint32_t>* now = nullptr;  // nullptr: not counted
  std::uint32_t then = 0;

  [[nodiscard]] bool has_moved() const { return now != nullptr && now->load() != then; }
};

class TargetMemory {
 public:
  // `lone`: no other process maps its private pages (PageWalk) until it forks, so that many places can be read at once.
  explicit TargetMemory(pid_t pid, std::optional<ForkCount> lone = std::nullopt);

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
  std::optional<ForkCount> lone_;
  Fd memory_;
};

}  // namespace whyrss
