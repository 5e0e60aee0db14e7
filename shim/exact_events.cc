#include "shim/exact_events.h"

#include <sys/single_threaded.h>
#include <x86intrin.h>

#include <array>
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

template <class Record>
void emit_compact(ThreadState& thread, trace::RecordKind kind, std::uintptr_t block, Record record) noexcept {
  trace::Lease& lease = thread.lease;
  std::uint32_t since = 0;
  const bool goes_on = lease.ticks != 0 && lease.used + sizeof(Record) <= trace::kChunkBytes;
  if (!(goes_on && take_ticks(thread, since)) && !emit_clock(thread, sizeof(Record))) return;
  record.record_bytes = sizeof(Record);
  record.kind = kind;
  record.address_high = static_cast<std::uint16_t>(block >> 32);
  record.address_low = static_cast<std::uint32_t>(block);
  record.ticks_since = since;
  std::memcpy(lease.data + lease.used, &record, sizeof record);
  trace::publish(lease, sizeof record);
}

}  // namespace

void start_ticks() noexcept {
  std::array<char, 16> name{};
  g_has_tsc = read_file("/sys/devices/system/clocksource/clocksource0/current_clocksource", name) == "tsc\n";
}

void emit_compact_allocate(ThreadState& thread, std::uintptr_t block, std::size_t usable,
                           std::uint32_t stack_id) noexcept {
  emit_compact(thread, trace::RecordKind::compact_allocate, block,
               trace::CompactAllocate{.record_bytes = 0,
                                      .kind = {},
                                      .address_high = 0,
                                      .address_low = 0,
                                      .ticks_since = 0,
                                      .size_bytes = static_cast<std::uint32_t>(usable),
                                      .stack_id = stack_id});
}

void emit_compact_release(ThreadState& thread, std::uintptr_t block) noexcept {
  emit_compact(thread, trace::RecordKind::compact_release, block, trace::CompactRelease{});
}

}  // namespace whyrss::shim
