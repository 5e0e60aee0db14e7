#include "shim/events/unmoved_bytes.h"

#include <atomic>

#include "shim/events/emit.h"
#include "shim/events/process_slot.h"

namespace whyrss::shim {
namespace {

constinit std::atomic<std::uint64_t> g_unmoved_bytes{0};
constinit std::atomic<std::uint32_t> g_unmoved_ms{0};  // the last time, as walked_ms
constinit std::atomic<std::uint64_t> g_lazily_freed_bytes{0};

}  // namespace

std::uint32_t now_ms() noexcept { return static_cast<std::uint32_t>(now_ns() / 1'000'000); }

void note_unmoved(ThreadState& thread, std::size_t size_bytes) noexcept {
  const trace::ProcessSlot* slot = slot_of(thread);
  if (slot == nullptr) return;
  g_unmoved_bytes.store(unmoved_since_walk(*slot) + size_bytes, std::memory_order_relaxed);
  g_unmoved_ms.store(now_ms(), std::memory_order_relaxed);
}

std::uint64_t unmoved_since_walk(const trace::ProcessSlot& slot) noexcept {
  const std::uint32_t since_walk_ms = g_unmoved_ms.load(std::memory_order_relaxed) - slot.walked_ms.load();
  return static_cast<std::int32_t>(since_walk_ms) < 0 ? 0 : g_unmoved_bytes.load(std::memory_order_relaxed);
}

void note_lazily_freed(std::size_t size_bytes) noexcept {
  g_lazily_freed_bytes.fetch_add(size_bytes, std::memory_order_relaxed);
}

std::uint64_t lazily_freed_bytes() noexcept { return g_lazily_freed_bytes.load(std::memory_order_relaxed); }

}  // namespace whyrss::shim
