// The stacks that the reader knows: 64-bit hash -> id. With 100 K stacks two share a hash once in 4e9 runs.
//
// Open addressing in levels: the first has 64 K slots, and each further one, mapped when a stack finds no room in those
// before, four times as many. Exact mode of Python needs them: importing numpy alone takes 160 K stacks. A stack that
// finds no room in any level is described again at each use. The first 128 stacks lie in the first page, as each page
// costs a short program a fault or two.
// No locks, no allocation; async-signal-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shim/events/thread_state.h"

namespace whyrss::shim {

class StackIds {
 public:
  struct Slot {
    std::atomic<std::uint64_t> hash;
    std::atomic<std::uint64_t> id;  // 0: being stored, or that thread does not exist after a fork; below the hash's
                                    // low half, so that an id that comes late, after the table was emptied, is not
                                    // taken for another stack's
  };
  // A stack's id, kNoStack if it has none; then `room` is where it may be stored, nullptr: nowhere.
  struct Found {
    std::uint32_t id;
    Slot* room;
  };

  // Maps the first level. The thread is entered and Busy held by the caller, as for grow().
  void start(ThreadState& thread) noexcept { grow(thread); }

  [[nodiscard]] Found find(std::uint64_t hash) const noexcept;

  // One level more, if there may be one. False: there is none.
  bool grow(ThreadState& thread) noexcept;

  // Only after the description was published: a fork child may refer to what it finds here. `room` of the last find of
  // this hash.
  void store(std::uint64_t hash, std::uint32_t id, Slot* room) noexcept;

  void empty() noexcept;

 private:
  static constexpr std::size_t kLevels = 4;
  static constexpr std::size_t kProbes = 16;

  static constexpr unsigned bits_of(std::size_t level) noexcept { return static_cast<unsigned>(16 + 2 * level); }
  static constexpr std::size_t slots_of(std::size_t level) noexcept { return std::size_t{1} << bits_of(level); }
  static constexpr unsigned kFirstBits = 8;  // a page
  static constexpr std::uint32_t kFirstStacks = 128;

  [[nodiscard]] static Found find_in(Slot* slots, unsigned bits, std::uint64_t hash) noexcept;
  static void put(std::uint64_t hash, std::uint64_t id, Slot* room) noexcept;
  void use_whole_level() noexcept;

  std::atomic<Slot*> levels_[kLevels]{};
  std::atomic<bool> is_memory_short_{false};
  std::atomic<std::uint32_t> bits_of_first_{kFirstBits};
  std::atomic<std::uint32_t> stored_{0};  // while it is the first page only
};

}  // namespace whyrss::shim
