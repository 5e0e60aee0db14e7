// Exact mode: every small block as a compact record (trace_format.h). The thread is entered and Busy held by the
// caller. A lease's compact records come after a clock record, and tell their time as what has gone by since the one
// before.
#pragma once

#include <x86intrin.h>

#include <cstddef>
#include <cstdint>

#include "shim/events/emit.h"
#include "shim/events/event_order.h"
#include "shim/events/thread_state.h"
#include "shim/trace/pool.h"
#include "shim/trace/trace_format.h"

namespace whyrss::shim {

// Once per image, before the first event: what ticks are.
void start_ticks() noexcept;

using trace::ticks_now;

// The reader has had the chunk's lines last.
inline constexpr std::size_t kPrefetchBytes = 256;

// Begins the compact records of a lease that has room for `size_bytes` more behind the clock record. False: dropped.
bool emit_clock(ThreadState& thread, std::size_t size_bytes) noexcept;

// Whether the lease has a clock record, and room for `size_bytes` more.
[[gnu::always_inline]] inline bool goes_on(const trace::Lease& lease, std::size_t size_bytes) noexcept {
  return lease.ticks != 0 && lease.used + size_bytes <= trace::kChunkBytes;
}

// Ticks since the last stamp of the lease, which has one; false: they do not fit.
[[gnu::always_inline]] inline bool take_ticks(trace::Lease& lease, std::uint32_t& since) noexcept {
  since = 0;
  const std::uint64_t now = ticks_now();
  if (now <= lease.ticks) return true;  // on another processor, by a hair
  const std::uint64_t ticks = now - lease.ticks;
  if (ticks > UINT32_MAX) return false;
  since = static_cast<std::uint32_t>(ticks);
  lease.ticks = now;
  return true;
}

// Stamps the record that comes next. False: it is dropped.
[[gnu::always_inline]] inline bool stamp_event(ThreadState& thread, std::size_t size_bytes,
                                               std::uint32_t& since) noexcept {
  return (goes_on(thread.lease, size_bytes) && take_ticks(thread.lease, since)) || emit_clock(thread, size_bytes);
}

// The stamp that comes next is read after everything that was read before.
[[gnu::always_inline]] inline void fence_next_stamp(ThreadState& thread) noexcept {
  _mm_lfence();
  ++thread.fences;
}

// Whether something happened since this thread's last event that the counters of pages do not tell: the next one is
// stamped.
[[gnu::always_inline]] inline bool has_order_changed(ThreadState& thread) noexcept {
  const std::uint32_t changes = g_order_changes.load(std::memory_order_acquire);
  const std::uint32_t walk = thread.walk->load(std::memory_order_relaxed);
  if (((changes ^ thread.seen_changes) | (walk ^ thread.seen_walk)) == 0) [[likely]]
    return false;
  thread.seen_changes = changes;
  thread.seen_walk = walk;
  fence_next_stamp(thread);
  return true;
}

[[gnu::always_inline]] inline bool is_due(ThreadState& thread) noexcept {
  return ++thread.unstamped % kEventsPerStamp == 0;
}

// Where the next record goes, with its first two words, which the kinds share. Whole words are written: a load of what
// was just stored in pieces has to wait.
[[gnu::always_inline]] inline std::uint64_t* begin_compact(trace::Lease& lease, trace::RecordKind kind,
                                                           std::size_t record_bytes, std::uintptr_t block,
                                                           std::uint32_t since) noexcept {
  std::byte* bytes = lease.data + lease.used;
  __builtin_prefetch(bytes + kPrefetchBytes, 1);
  auto* words = reinterpret_cast<std::uint64_t*>(bytes);
  words[0] = block >> 32 << 48 | static_cast<std::uint64_t>(kind) << 32 | record_bytes;
  words[1] = static_cast<std::uint64_t>(since) << 32 | static_cast<std::uint32_t>(block);
  return words;
}
static_assert(offsetof(trace::CompactAllocate, kind) == 4 && offsetof(trace::CompactAllocate, address_high) == 6 &&
              offsetof(trace::CompactAllocate, address_low) == 8 &&
              offsetof(trace::CompactAllocate, ticks_since) == 12 &&
              offsetof(trace::CompactAllocate, size_bytes) == 16 && offsetof(trace::CompactAllocate, stack_id) == 20);
static_assert(offsetof(trace::CompactRelease, kind) == 4 && offsetof(trace::CompactRelease, address_high) == 6 &&
              offsetof(trace::CompactRelease, address_low) == 8 && offsetof(trace::CompactRelease, ticks_since) == 12);

// With room for them in the lease, and stamped.
[[gnu::always_inline]] inline void write_compact_allocate(trace::Lease& lease, std::uintptr_t block, std::size_t usable,
                                                          std::uint32_t stack_id, std::uint32_t since) noexcept {
  std::uint64_t* words =
      begin_compact(lease, trace::RecordKind::compact_allocate, sizeof(trace::CompactAllocate), block, since);
  words[2] = static_cast<std::uint64_t>(stack_id) << 32 | static_cast<std::uint32_t>(usable);
  trace::publish(lease, sizeof(trace::CompactAllocate));
}

[[gnu::always_inline]] inline void write_compact_release(trace::Lease& lease, std::uintptr_t block,
                                                         std::uint32_t since) noexcept {
  begin_compact(lease, trace::RecordKind::compact_release, sizeof(trace::CompactRelease), block, since);
  trace::publish(lease, sizeof(trace::CompactRelease));
}

// With a stamp of its own, but for most events of a program with one thread.
void emit_compact_allocate(ThreadState& thread, std::uintptr_t block, std::size_t usable,
                           std::uint32_t stack_id) noexcept;
void emit_compact_release(ThreadState& thread, std::uintptr_t block) noexcept;

}  // namespace whyrss::shim
