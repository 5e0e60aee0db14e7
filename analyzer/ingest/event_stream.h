// The event records of one process, put together from its segments.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "ingest/bytes.h"
#include "shim/trace/trace_format.h"

namespace whyrss {

struct EventRecord {
  std::uint64_t time_ns = 0;
  trace::RecordKind kind = trace::RecordKind::padding;
  Bytes bytes;  // the whole record
};

// The fixed part of a record; false when the record is shorter.
template <typename T>
bool read_record(const EventRecord& record, T& value) {
  return ByteReader(record.bytes).take(value);
}

// Keeps spans, not bytes: what they point at must outlive the stream.
class EventStream {
 public:
  // A piece of a chunk. The same bytes may come again (after a kill of the collector, or from the pool):
  // the first ones count.
  void add_segment(std::uint64_t lease, std::uint32_t offset, std::uint32_t lost_before, Bytes bytes);

  // A payload of a segment frame: several segments. False when it is damaged; what came before counts.
  bool add_payload(Bytes payload);

  // By time; records of one thread that bear the same time stay in program order.
  [[nodiscard]] std::vector<EventRecord> records();

  [[nodiscard]] bool empty() const { return leases_.empty(); }
  [[nodiscard]] std::uint64_t lost_records() const;     // dropped by the writers
  [[nodiscard]] std::uint64_t missing_bytes() const;    // gaps between the segments of a lease
  [[nodiscard]] std::uint64_t damaged_records() const;  // found by records()

 private:
  struct Piece {
    std::uint32_t offset;
    Bytes bytes;
  };
  struct Lease {
    std::uint32_t lost_before = 0;
    std::vector<Piece> pieces;
  };
  void read_piece(Bytes bytes, std::vector<EventRecord>& out);

  std::map<std::uint64_t, Lease> leases_;
  std::uint64_t missing_bytes_ = 0, damaged_records_ = 0;
};

}  // namespace whyrss
