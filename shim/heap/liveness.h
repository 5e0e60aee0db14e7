// The liveness table (trace/liveness_format.h): live bytes per page, of small blocks and of larger ones that are
// counted. Any thread, signal handlers; nothing is locked. A fork child goes on with its copy.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shim/events/thread_state.h"
#include "shim/sys/single_threaded.h"
#include "shim/trace/liveness_format.h"
#include "shim/trace/trace_format.h"

namespace whyrss::shim {

using LivenessDirectory = std::atomic<std::uint64_t>*;

// Maps the table; nothing is counted before open_liveness. Once per image.
void start_liveness() noexcept;
// Counting begins, if there is a table: sizes are known.
void open_liveness() noexcept;
// What the process slot says; 0: no table.
std::uint64_t liveness_address() noexcept;
// The table's memory, to the reader; the thread is entered and Busy held by the caller.
void report_liveness(ThreadState& thread) noexcept;
// Maps the leaves of the pages that a small block or an arena lies on, in the common directory. The thread is entered
// and Busy held by the caller.
void map_leaves(ThreadState& thread, const void* start, std::size_t size_bytes) noexcept;
// The same for the start of a larger block.
void map_block_start(ThreadState& thread, const void* block) noexcept;

// In sampled mode, where there are other threads: from now on the thread counts what lies near the block in a directory
// of its own, unless there is none for it. The thread is entered and Busy held by the caller.
void use_own_pages(ThreadState& thread, const void* block) noexcept;
// Whether use_own_pages has not been called for what lies near the block, and may help.
bool lacks_own_pages(const ThreadState& thread, const void* block) noexcept;
// At the thread's end: its directory is free for another one.
void leave_own_pages(ThreadState& thread) noexcept;
// Before the child is attached: the other threads are not there. One of a raw clone that has threads of its own by now,
// and another one than the first is attached, finds the directories taken.
void liveness_after_fork_in_child(const ThreadState& thread) noexcept;

// Calls visit(directory) for all that may have counters.
template <class Visit>
void visit_directories(Visit visit) noexcept {
  const auto* table = reinterpret_cast<const trace::LivenessTable*>(liveness_address());
  if (table == nullptr) return;
  visit(reinterpret_cast<LivenessDirectory>(table->directory));
  for (const std::uint64_t& address : table->thread_directories)
    if (const std::uint64_t own = __atomic_load_n(&address, __ATOMIC_ACQUIRE); own != 0)
      visit(reinterpret_cast<LivenessDirectory>(own));
}

// What a change does to the counter of a page.
enum class LiveChange : std::uint8_t { allocate, release, undo_release };

// The directory of block starts; it lies behind the common one.
[[gnu::always_inline]] inline LivenessDirectory block_starts(LivenessDirectory directory) noexcept {
  return directory + trace::kDirectoryEntries;
}

// Of a small block that lies on several pages.
enum class AddTo : std::uint8_t { common, own };
bool change_live_pages(LivenessDirectory directory, AddTo whose, const void* block, std::size_t usable,
                       LiveChange change) noexcept;

// Read once for each block: a signal handler may be the first to have one.
[[gnu::always_inline]] inline LivenessDirectory own_directory(const ThreadState& thread) noexcept {
  return __atomic_load_n(&thread.own_pages, __ATOMIC_RELAXED);
}

// The counter of the page of `address`, nullptr: it has none.
[[gnu::always_inline]] inline std::uint32_t* live_counter(LivenessDirectory directory, std::uint64_t address) noexcept {
  const std::uint64_t leaf =
      directory[address / trace::kLeafSpan % trace::kDirectoryEntries].load(std::memory_order_acquire);
  if (leaf == 0) [[unlikely]]
    return nullptr;
  return reinterpret_cast<std::uint32_t*>(leaf) + address / trace::kLivenessPageBytes % trace::kLeafPages;
}

// One instruction each: a signal handler sees it done or not. A program without threads needs no bus lock.
[[gnu::always_inline]] inline void add_own_live(std::uint32_t* counter, std::uint32_t units) noexcept {
  __asm__ volatile("addl %1, %0" : "+m"(*counter) : "er"(units) : "cc");
}

[[gnu::always_inline]] inline void add_live(std::uint32_t* counter, std::uint32_t units) noexcept {
  if (is_single_threaded())
    add_own_live(counter, units);
  else
    __asm__ volatile("lock addl %1, %0" : "+m"(*counter) : "er"(units) : "cc");
}

constexpr std::uint32_t live_units(LiveChange change, std::size_t bytes) noexcept {
  const auto units = static_cast<std::uint32_t>(bytes / trace::kLivenessUnitBytes);
  if (change == LiveChange::release) return -units;
  return change == LiveChange::allocate ? units + (std::uint32_t{1} << 16) : units;
}

[[nodiscard]] constexpr bool is_on_one_page(std::uintptr_t address, std::size_t usable) noexcept {
  return address % trace::kLivenessPageBytes + usable <= trace::kLivenessPageBytes;
}

// A block comes or goes that is counted; a larger one's release is counted before the real one, or the next owner of
// its place would be taken for it. False: it lies on several pages, or on one that has no counter where this thread
// counts; nothing was counted.
[[gnu::always_inline]] inline bool change_live_on_page(const ThreadState& thread, LivenessDirectory directory,
                                                       const void* block, std::size_t usable,
                                                       LiveChange change) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  if (!is_on_one_page(address, usable)) [[unlikely]]
    return false;
  const LivenessDirectory own = own_directory(thread);
  std::uint32_t* counter = live_counter(own != nullptr ? own : directory, address);
  if (counter == nullptr) [[unlikely]]
    return false;
  if (own != nullptr)
    add_own_live(counter, live_units(change, usable));
  else
    add_live(counter, live_units(change, usable));
  return true;
}

// The same wherever it lies and however large it is, in the common directory where the thread has no counter of its
// own. False: a page has no counter; nothing was counted.
bool change_live(const ThreadState& thread, LivenessDirectory directory, const void* block, std::size_t usable,
                 LiveChange change) noexcept;

// Tells the reader where the liveness table is, or that there is none while another image takes the process over.
void publish_liveness(ThreadState& thread, bool valid) noexcept;

}  // namespace whyrss::shim
