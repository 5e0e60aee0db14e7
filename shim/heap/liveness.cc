#include "shim/heap/liveness.h"

#include <algorithm>
#include <array>

#include "shim/events/own_memory_events.h"
#include "shim/heap/heap_settings.h"
#include "shim/sys/own_memory.h"

namespace whyrss::shim {
namespace {

constexpr std::size_t kHeaderBytes = 4096;
constexpr std::size_t kTableBytes = kHeaderBytes + trace::kDirectoryEntries * sizeof(std::uint64_t);

constinit trace::LivenessTable* g_table = nullptr;

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

void map_leaf(ThreadState& thread, LivenessDirectory directory, std::uint64_t index) noexcept {
  if (directory[index].load(std::memory_order_relaxed) != 0 || is_refused(index)) return;
  void* leaf = map_own(trace::kLeafBytes);
  if (leaf == nullptr) return refuse_leaf(index);
  std::uint64_t none = 0;
  if (directory[index].compare_exchange_strong(none, reinterpret_cast<std::uintptr_t>(leaf), std::memory_order_release))
    report_own_memory(thread, leaf, trace::kLeafBytes);
  else
    unmap_own(leaf, trace::kLeafBytes);
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
              .leaves_refused = 0};
}

void open_liveness() noexcept {
  if (g_table == nullptr) return;
  heap().directory.store(reinterpret_cast<LivenessDirectory>(g_table->directory), std::memory_order_release);
}

std::uint64_t liveness_address() noexcept { return reinterpret_cast<std::uintptr_t>(g_table); }

void report_liveness(ThreadState& thread) noexcept {
  if (g_table != nullptr) report_own_memory(thread, g_table, kTableBytes);
}

void map_leaves(ThreadState& thread, const void* block, std::size_t usable) noexcept {
  const LivenessDirectory directory = heap().directory.load(std::memory_order_acquire);
  if (directory == nullptr) return;
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  const std::uint64_t first = address / trace::kLeafSpan;
  const std::uint64_t last = (address + std::max<std::size_t>(usable, 1) - 1) / trace::kLeafSpan;
  for (std::uint64_t index = first; index <= last; ++index)
    map_leaf(thread, directory, index % trace::kDirectoryEntries);
}

bool change_live_pages(LivenessDirectory directory, const void* block, std::size_t usable, LiveChange change) noexcept {
  auto address = reinterpret_cast<std::uintptr_t>(block);
  const std::uintptr_t end = address + usable;
  if (live_counter(directory, address) == nullptr || live_counter(directory, end - 1) == nullptr) return false;
  while (address < end) {
    const std::uintptr_t next = std::min(end, (address / trace::kLivenessPageBytes + 1) * trace::kLivenessPageBytes);
    add_live(live_counter(directory, address), live_units(change, next - address));
    address = next;
  }
  return true;
}

void publish_liveness(ThreadState& thread, bool valid) noexcept {
  const trace::Writer& writer = thread.writer;
  if (writer.slot == trace::kNoSlot) return;
  trace::ProcessSlot& slot = writer.pool.slots[writer.slot];
  if (valid) slot.live_bytes.store(0, std::memory_order_relaxed);  // an image before an exec had another heap
  slot.liveness.store(valid ? liveness_address() : 0, std::memory_order_release);
}

}  // namespace whyrss::shim
