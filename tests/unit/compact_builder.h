// Writes compact records of exact mode as they stand in a chunk.
#pragma once

#include <span>

#include "recording/lease_reader.h"
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

// What the collector makes of the chunks of one process.
class DrainedChunks {
 public:
  // Of a lease's records, those from `from` on.
  void add(std::uint64_t lease, std::uint32_t tid, const ByteVector& chunk, std::uint32_t from = 0) {
    LeaseProgress progress{.lease = lease, .offset = from, .timed = false, .ticks = 0};
    LeaseReader reader(std::span<const std::byte>(chunk).subspan(from), {.tid = tid, .lost_before = 0}, progress,
                       columns);
    while (const auto other = reader.next())
      segments.push_back(segment(lease, other->offset, {other->bytes.begin(), other->bytes.end()}));
  }

  BlockColumns columns{0};
  std::vector<ByteVector> segments;
};

}  // namespace whyrss::testing_support
