#include "shim/heap/liveness.h"

#include <sys/resource.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <bit>

#include "shim/events/own_memory_events.h"
#include "shim/heap/heap_settings.h"
#include "shim/sys/own_memory.h"
#include "shim/sys/raw_io.h"

namespace whyrss::shim {
namespace {

constexpr std::size_t kHeaderBytes = 4096;
constexpr std::size_t kDirectoryBytes = trace::kDirectoryEntries * sizeof(std::uint64_t);
constexpr std::size_t kTableBytes = kHeaderBytes + 2 * kDirectoryBytes;

constinit trace::LivenessTable* g_table = nullptr;

// One bit per directory of threads: a thread has it, or it cannot be had.
constinit std::atomic<std::uint32_t> g_taken_directories{0};
static_assert(trace::kThreadDirectories <= 31);

// Leaves that did not fit: one bit per directory entry, touched only then.
constinit std::array<std::atomic<std::uint64_t>, trace::kDirectoryEntries / 64> g_refused{};

void refuse_leaf(std::uint64_t index) noexcept {
  const std::uint64_t bit = std::uint64_t{1} << index % 64;
  if ((g_refused[index / 64].fetch_or(bit, std::memory_order_relaxed) & bit) == 0)
    std::atomic_ref(g_table->leaves_refused).fetch_add(1, std::memory_order_relaxed);
}

bool is_refused(std::uint64_t index) noexcept {
  return (g_refused[index / 64].load(std::memory_order_relaxed) >> index % 64 & 1) != 0;
}

// Whether the directory has it now.
bool map_leaf(ThreadState& thread, LivenessDirectory directory, std::uint64_t index) noexcept {
  if (directory[index].load(std::memory_order_relaxed) != 0) return true;
  void* leaf = map_own(trace::kLeafBytes);
  if (leaf == nullptr) return false;
  std::uint64_t none = 0;
  if (directory[index].compare_exchange_strong(none, reinterpret_cast<std::uintptr_t>(leaf), std::memory_order_release))
    report_own_memory(thread, leaf, trace::kLeafBytes);
  else
    unmap_own(leaf, trace::kLeafBytes);
  return true;
}

void map_or_refuse(ThreadState& thread, LivenessDirectory directory, std::uint64_t index) noexcept {
  if (!is_refused(index) && !map_leaf(thread, directory, index)) refuse_leaf(index);
}

std::uint64_t leaf_index(const void* block) noexcept {
  return reinterpret_cast<std::uintptr_t>(block) / trace::kLeafSpan % trace::kDirectoryEntries;
}

std::uint32_t bit_of_directory(LivenessDirectory own) noexcept {
  for (std::size_t i = 0; i < trace::kThreadDirectories; ++i)
    if (g_table->thread_directories[i] == reinterpret_cast<std::uintptr_t>(own)) return std::uint32_t{1} << i;
  return 0;
}

// Not of a program whose address space is limited, by a few MiB a thread, nor of the reserve of a restricted one.
bool may_have_more_memory() noexcept {
  if (trace::is_kernel_closed()) return false;
  for (const int resource : {RLIMIT_AS, RLIMIT_DATA}) {
    rlimit limit{};
    if (own_syscall(SYS_prlimit64, 0, resource, 0, as_long(&limit)) != 0 || limit.rlim_cur != RLIM_INFINITY)
      return false;
  }
  return true;
}

// There is no room for more.
void refuse_directories() noexcept { g_taken_directories.store(UINT32_MAX, std::memory_order_relaxed); }

LivenessDirectory take_directory(ThreadState& thread) noexcept {
  std::uint32_t taken = g_taken_directories.load(std::memory_order_relaxed);
  std::size_t index = 0;
  do {
    index = static_cast<std::size_t>(std::countr_one(taken));
    if (index == trace::kThreadDirectories) return nullptr;
  } while (!g_taken_directories.compare_exchange_weak(taken, taken | std::uint32_t{1} << index,
                                                      std::memory_order_acquire, std::memory_order_relaxed));
  std::uint64_t& address = g_table->thread_directories[index];
  if (address != 0) return reinterpret_cast<LivenessDirectory>(address);
  void* directory = may_have_more_memory() ? map_own(kDirectoryBytes) : nullptr;
  if (directory == nullptr) {
    refuse_directories();
    return nullptr;
  }
  __atomic_store_n(&address, reinterpret_cast<std::uintptr_t>(directory), __ATOMIC_RELEASE);
  report_own_memory(thread, directory, kDirectoryBytes);
  return static_cast<LivenessDirectory>(directory);
}

}  // namespace

void start_liveness() noexcept {
  auto* memory = static_cast<std::byte*>(map_own(kTableBytes));
  if (memory == nullptr) return;
  g_table = reinterpret_cast<trace::LivenessTable*>(memory);
  auto* directory = reinterpret_cast<LivenessDirectory>(memory + kHeaderBytes);
  *g_table = {.magic = trace::kLivenessMagic,
              .directory = reinterpret_cast<std::uintptr_t>(directory),
              .pymalloc_pool_bytes = 0,
              .reserved = 0,
              .leaves_refused = 0,
              .thread_directories = {},
              .block_starts = reinterpret_cast<std::uintptr_t>(block_starts(directory))};
}

void open_liveness() noexcept {
  if (g_table == nullptr) return;
  heap().directory.store(reinterpret_cast<LivenessDirectory>(g_table->directory), std::memory_order_release);
}

std::uint64_t liveness_address() noexcept { return reinterpret_cast<std::uintptr_t>(g_table); }

void report_liveness(ThreadState& thread) noexcept {
  if (g_table != nullptr) report_own_memory(thread, g_table, kTableBytes);
}

void map_leaves(ThreadState& thread, const void* start, std::size_t size_bytes) noexcept {
  const LivenessDirectory directory = heap().directory.load(std::memory_order_acquire);
  if (directory == nullptr) return;
  const auto address = reinterpret_cast<std::uintptr_t>(start);
  const std::uint64_t first = address / trace::kLeafSpan;
  const std::uint64_t last = (address + std::max<std::size_t>(size_bytes, 1) - 1) / trace::kLeafSpan;
  for (std::uint64_t leaf = first; leaf <= last; ++leaf)
    map_or_refuse(thread, directory, leaf % trace::kDirectoryEntries);
}

void map_block_start(ThreadState& thread, const void* block) noexcept {
  const LivenessDirectory directory = heap().directory.load(std::memory_order_acquire);
  if (directory != nullptr) map_or_refuse(thread, block_starts(directory), leaf_index(block));
}

bool lacks_own_pages(const ThreadState& thread, const void* block) noexcept {
  const std::uint64_t index = leaf_index(block);
  return thread.own_pages != nullptr && thread.own_pages[index].load(std::memory_order_relaxed) == 0 &&
         heap().directory.load(std::memory_order_acquire)[index].load(std::memory_order_acquire) != 0;
}

void use_own_pages(ThreadState& thread, const void* block) noexcept {
  if (heap().exact || thread.ended || heap().directory.load(std::memory_order_acquire) == nullptr) return;
  if (thread.own_pages == nullptr) {
    if (is_single_threaded()) return;
    thread.own_pages = take_directory(thread);
  }
  // Without room for a leaf the common directory serves.
  if (lacks_own_pages(thread, block) &&
      (!may_have_more_memory() || !map_leaf(thread, thread.own_pages, leaf_index(block)))) {
    thread.own_pages = nullptr;
    refuse_directories();
  }
}

void leave_own_pages(ThreadState& thread) noexcept {
  const LivenessDirectory own = thread.own_pages;
  if (own == nullptr) return;
  thread.own_pages = nullptr;
  g_taken_directories.fetch_and(~bit_of_directory(own), std::memory_order_release);
}

void liveness_after_fork_in_child(const ThreadState& thread) noexcept {
  if (g_table == nullptr || own_syscall(SYS_gettid) != own_syscall(SYS_getpid)) return;
  g_taken_directories.store(thread.own_pages == nullptr ? 0 : bit_of_directory(thread.own_pages),
                            std::memory_order_relaxed);
}

bool change_live_pages(LivenessDirectory directory, AddTo whose, const void* block, std::size_t usable,
                       LiveChange change) noexcept {
  auto address = reinterpret_cast<std::uintptr_t>(block);
  const std::uintptr_t end = address + usable;
  if (live_counter(directory, address) == nullptr || live_counter(directory, end - 1) == nullptr) return false;
  while (address < end) {
    const std::uintptr_t next = std::min(end, (address / trace::kLivenessPageBytes + 1) * trace::kLivenessPageBytes);
    std::uint32_t* counter = live_counter(directory, address);
    const std::uint32_t units = live_units(change, next - address);
    whose == AddTo::own ? add_own_live(counter, units) : add_live(counter, units);
    address = next;
  }
  return true;
}

namespace {

// The page is the block's alone until its release, so nothing else changes the word meanwhile.
bool change_block_start(LivenessDirectory starts, const void* block, std::size_t usable, LiveChange change) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  std::uint32_t* start = live_counter(starts, address);
  if (start == nullptr) return false;
  const std::uint32_t word = __atomic_load_n(start, __ATOMIC_RELAXED);
  const bool release = change == LiveChange::release;
  __atomic_store_n(start,
                   release ? trace::block_start::released(word) : trace::block_start::allocated(word, address, usable),
                   __ATOMIC_RELAXED);
  return true;
}

}  // namespace

bool change_live(const ThreadState& thread, LivenessDirectory directory, const void* block, std::size_t usable,
                 LiveChange change) noexcept {
  if (usable >= trace::kLargeBlockBytes) return change_block_start(block_starts(directory), block, usable, change);
  if (change_live_on_page(thread, directory, block, usable, change)) return true;
  const LivenessDirectory own = own_directory(thread);
  return (own != nullptr && change_live_pages(own, AddTo::own, block, usable, change)) ||
         change_live_pages(directory, AddTo::common, block, usable, change);
}

void publish_liveness(ThreadState& thread, bool valid) noexcept {
  const trace::Writer& writer = thread.writer;
  if (writer.slot == trace::kNoSlot) return;
  trace::ProcessSlot& slot = writer.pool.slots[writer.slot];
  if (valid) slot.live_bytes.store(0, std::memory_order_relaxed);  // an image before an exec had another heap
  slot.liveness.store(valid ? liveness_address() : 0, std::memory_order_release);
}

}  // namespace whyrss::shim
