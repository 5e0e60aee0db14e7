// Writes compact records of exact mode as they stand in a chunk.
#pragma once

#include "recording_builder.h"

namespace whyrss::testing_support {

inline ByteVector clock_at(std::uint64_t time_ns, std::uint64_t ticks) {
  trace::ClockRecord fixed{};
  fixed.ticks = ticks;
  return record(trace::RecordKind::clock, time_ns, fixed);
}

template <typename Record>
ByteVector bytes_of(const Record& fixed) {
  ByteVector out(sizeof fixed);
  std::memcpy(out.data(), &fixed, sizeof fixed);
  return out;
}

inline ByteVector compact_allocate(std::uint32_t ticks_since, std::uint64_t address, std::uint32_t size_bytes,
                                   std::uint32_t stack_id) {
  const trace::CompactAllocate fixed{.record_bytes = sizeof fixed,
                                     .kind = trace::RecordKind::compact_allocate,
                                     .address_high = static_cast<std::uint16_t>(address >> 32),
                                     .address_low = static_cast<std::uint32_t>(address),
                                     .ticks_since = ticks_since,
                                     .size_bytes = size_bytes,
                                     .stack_id = stack_id};
  return bytes_of(fixed);
}

inline ByteVector compact_release(std::uint32_t ticks_since, std::uint64_t address) {
  const trace::CompactRelease fixed{.record_bytes = sizeof fixed,
                                    .kind = trace::RecordKind::compact_release,
                                    .address_high = static_cast<std::uint16_t>(address >> 32),
                                    .address_low = static_cast<std::uint32_t>(address),
                                    .ticks_since = ticks_since};
  return bytes_of(fixed);
}

}  // namespace whyrss::testing_support
