#include "shim/exact_events.h"

#include <array>
#include <cstring>
#include <string_view>

#include "shim/raw_io.h"

namespace whyrss::shim {

constinit bool g_has_tsc = false;

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

void start_ticks() noexcept {
  std::array<char, 16> name{};
  g_has_tsc = read_file("/sys/devices/system/clocksource/clocksource0/current_clocksource", name) == "tsc\n";
}

}  // namespace whyrss::shim
