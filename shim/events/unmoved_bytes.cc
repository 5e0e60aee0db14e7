#include "shim/events/unmoved_bytes.h"

#include <atomic>

#include "shim/events/emit.h"
#include "shim/events/process_slot.h"

namespace whyrss::shim {
namespace {

struct Noted {
  std::atomic<std::int64_t> bytes{0};
  std::atomic<std::uint32_t> ms{0};  // the last time, as walked_ms
};
constinit Noted g_unmoved, g_objects, g_children;
constinit std::atomic<std::uint64_t> g_lazily_freed_bytes{0};

std::int64_t since_walk(const Noted& noted, const trace::ProcessSlot& slot) noexcept {
  const std::uint32_t since_walk_ms = noted.ms.load(std::memory_order_relaxed) - slot.walked_ms.load();
  return static_cast<std::int32_t>(since_walk_ms) < 0 ? 0 : noted.bytes.load(std::memory_order_relaxed);
}

void note(Noted& noted, ThreadState& thread, std::int64_t size_bytes) noexcept {
  const trace::ProcessSlot* slot = slot_of(thread);
  if (slot == nullptr) return;
  noted.bytes.store(since_walk(noted, *slot) + size_bytes, std::memory_order_relaxed);
  noted.ms.store(now_ms(), std::memory_order_relaxed);
}

}  // namespace

std::uint32_t now_ms() noexcept { return static_cast<std::uint32_t>(now_ns() / 1'000'000); }

void note_unmoved(ThreadState& thread, std::size_t size_bytes) noexcept {
  note(g_unmoved, thread, static_cast<std::int64_t>(size_bytes));
}

std::uint64_t unmoved_since_walk(const trace::ProcessSlot& slot) noexcept {
  return static_cast<std::uint64_t>(since_walk(g_unmoved, slot));
}

void note_objects(ThreadState& thread, std::int64_t size_bytes) noexcept { note(g_objects, thread, size_bytes); }

std::int64_t objects_since_walk(const trace::ProcessSlot& slot) noexcept { return since_walk(g_objects, slot); }

void note_ended_child(ThreadState& thread) noexcept { note(g_children, thread, 1); }

bool child_ended_since_walk(const trace::ProcessSlot& slot) noexcept { return since_walk(g_children, slot) > 0; }

void note_lazily_freed(std::size_t size_bytes) noexcept {
  g_lazily_freed_bytes.fetch_add(size_bytes, std::memory_order_relaxed);
}

std::uint64_t lazily_freed_bytes() noexcept { return g_lazily_freed_bytes.load(std::memory_order_relaxed); }

}  // namespace whyrss::shim
