#include "shim/observe/exact_events.h"

#include <array>
#include <atomic>
#include <cstring>
#include <string_view>

#include "shim/events/event_order.h"
#include "shim/sys/raw_io.h"
#include "shim/sys/single_threaded.h"

namespace whyrss::shim {

constinit std::atomic<std::uint32_t> g_order_changes{0};
constinit std::atomic<const void*> g_object_thread{nullptr};

namespace {

bool stamp_as_usual(ThreadState& thread, std::size_t size_bytes, std::uint32_t& since) noexcept {
  const bool changed = has_order_changed(thread);
  if (is_single_threaded() && !changed && !is_due(thread) && goes_on(thread.lease, size_bytes)) return true;
  return stamp_event(thread, size_bytes, since);
}

}  // namespace

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

void emit_compact_allocate(ThreadState& thread, std::uintptr_t block, std::size_t usable,
                           std::uint32_t stack_id) noexcept {
  std::uint32_t since = 0;
  if (stamp_as_usual(thread, sizeof(trace::CompactAllocate), since))
    write_compact_allocate(thread.lease, block, usable, stack_id, since);
}

void emit_compact_release(ThreadState& thread, std::uintptr_t block) noexcept {
  std::uint32_t since = 0;
  if (stamp_as_usual(thread, sizeof(trace::CompactRelease), since)) write_compact_release(thread.lease, block, since);
}

void start_ticks() noexcept {
  std::array<char, 16> name{};
  trace::start_ticks(read_file("/sys/devices/system/clocksource/clocksource0/current_clocksource", name) == "tsc\n");
}

}  // namespace whyrss::shim
