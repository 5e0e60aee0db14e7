// Exact mode: every small block as a compact record (trace_format.h). The thread is entered and Busy held by the
// caller. A lease's compact records come after a clock record, and tell their time as what has gone by since the one
// before.
#pragma once

#include <sys/single_threaded.h>
#include <x86intrin.h>

#include <cstddef>
#include <cstdint>

#include "shim/emit.h"
#include "shim/thread_state.h"
#include "shim/trace/pool.h"
#include "shim/trace/trace_format.h"

namespace whyrss::shim {

// Once per image, before the first event: what ticks are.
void start_ticks() noexcept;

extern constinit bool g_has_tsc;
inline std::uint64_t ticks_now() noexcept { return g_has_tsc ? __rdtsc() : now_ns(); }

// In a program with one thread the order of the records says all; a stamp costs as much as the rest.
inline constexpr std::uint32_t kEventsPerStamp = 64;

// The reader has had the chunk's lines last.
inline constexpr std::size_t kPrefetchBytes = 256;

// Begins the compact records of a lease that has room for `size_bytes` more behind the clock record. False: dropped.
bool emit_clock(ThreadState& thread, std::size_t size_bytes) noexcept;

// Whether the lease has a clock record, and room for `size_bytes` more.
[[gnu::always_inline]] inline bool goes_on(const trace::Lease& lease, std::size_t size_bytes) noexcept {
  return lease.ticks != 0 && lease.used + size_bytes <= trace::kChunkBytes;
}

// Ticks since the last compact record of the lease, which has one; false: they do not fit.
[[gnu::always_inline]] inline bool take_ticks(ThreadState& thread, std::uint32_t& since) noexcept {
  since = 0;
  if (__libc_single_threaded != 0 && ++thread.unstamped % kEventsPerStamp != 0) return true;
  const std::uint64_t now = ticks_now();
  if (now <= thread.lease.ticks) return true;  // on another processor, by a hair
  const std::uint64_t ticks = now - thread.lease.ticks;
  if (ticks > UINT32_MAX) return false;
  since = static_cast<std::uint32_t>(ticks);
  thread.lease.ticks = now;
  return true;
}

// Where a record of this size goes, and its first two words, which the kinds share; nullptr: it was dropped. Whole
// words are written: a load of what was just stored in pieces has to wait.
[[gnu::always_inline]] inline std::uint64_t* begin_compact(ThreadState& thread, trace::RecordKind kind,
                                                           std::size_t record_bytes, std::uintptr_t block) noexcept {
  trace::Lease& lease = thread.lease;
  std::uint32_t since = 0;
  if (!(goes_on(lease, record_bytes) && take_ticks(thread, since)) && !emit_clock(thread, record_bytes)) [[unlikely]]
    return nullptr;
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

[[gnu::always_inline]] inline void emit_compact_allocate(ThreadState& thread, std::uintptr_t block, std::size_t usable,
                                                         std::uint32_t stack_id) noexcept {
  std::uint64_t* words =
      begin_compact(thread, trace::RecordKind::compact_allocate, sizeof(trace::CompactAllocate), block);
  if (words == nullptr) [[unlikely]]
    return;
  words[2] = static_cast<std::uint64_t>(stack_id) << 32 | static_cast<std::uint32_t>(usable);
  trace::publish(thread.lease, sizeof(trace::CompactAllocate));
}

[[gnu::always_inline]] inline void emit_compact_release(ThreadState& thread, std::uintptr_t block) noexcept {
  const std::uint64_t* words =
      begin_compact(thread, trace::RecordKind::compact_release, sizeof(trace::CompactRelease), block);
  if (words != nullptr) [[likely]]
    trace::publish(thread.lease, sizeof(trace::CompactRelease));
}

}  // namespace whyrss::shim
