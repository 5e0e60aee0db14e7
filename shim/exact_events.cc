#include "shim/exact_events.h"

#include <sys/single_threaded.h>
#include <x86intrin.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "shim/emit.h"
#include "shim/raw_io.h"
#include "shim/trace/pool.h"
#include "shim/trace/trace_format.h"

namespace whyrss::shim {
namespace {

// In a program with one thread the order of the records says all; a stamp costs as much as the rest.
constexpr std::uint32_t kEventsPerStamp = 64;

// The reader has had the chunk's lines last.
constexpr std::size_t kPrefetchBytes = 256;

constinit bool g_has_tsc = false;

std::uint64_t ticks_now() noexcept { return g_has_tsc ? __rdtsc() : now_ns(); }

// Begins the compact records of a lease that has room for `size_bytes` more behind the clock record.
bool emit_clock(ThreadState& thread, std::size_t size_bytes) noexcept {
  std::byte* bytes = trace::reserve(thread.writer, thread.lease, sizeof(trace::ClockRecord) + size_bytes);
  if (bytes == nullptr) return false;
  const trace::ClockRecord record{.header = header_of(trace::RecordKind::clock, sizeof(trace::ClockRecord)),
                                  .ticks = ticks_now()};
  std::memcpy(bytes, &record, sizeof record);
  trace::publish(thread.lease, sizeof record);
  thread.lease.ticks = record.ticks;
  return true;
}

// Ticks since the last compact record of the lease, which has one; false: they do not fit.
bool take_ticks(ThreadState& thread, std::uint32_t& since) noexcept {
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
std::uint64_t* begin_compact(ThreadState& thread, trace::RecordKind kind, std::size_t record_bytes,
                             std::uintptr_t block) noexcept {
  trace::Lease& lease = thread.lease;
  std::uint32_t since = 0;
  const bool goes_on = lease.ticks != 0 && lease.used + record_bytes <= trace::kChunkBytes;
  if (!(goes_on && take_ticks(thread, since)) && !emit_clock(thread, record_bytes)) return nullptr;
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

}  // namespace

void start_ticks() noexcept {
  std::array<char, 16> name{};
  g_has_tsc = read_file("/sys/devices/system/clocksource/clocksource0/current_clocksource", name) == "tsc\n";
}

void emit_compact_allocate(ThreadState& thread, std::uintptr_t block, std::size_t usable,
                           std::uint32_t stack_id) noexcept {
  std::uint64_t* words =
      begin_compact(thread, trace::RecordKind::compact_allocate, sizeof(trace::CompactAllocate), block);
  if (words == nullptr) return;
  words[2] = static_cast<std::uint64_t>(stack_id) << 32 | static_cast<std::uint32_t>(usable);
  trace::publish(thread.lease, sizeof(trace::CompactAllocate));
}

void emit_compact_release(ThreadState& thread, std::uintptr_t block) noexcept {
  const std::uint64_t* words =
      begin_compact(thread, trace::RecordKind::compact_release, sizeof(trace::CompactRelease), block);
  if (words != nullptr) trace::publish(thread.lease, sizeof(trace::CompactRelease));
}

}  // namespace whyrss::shim
