// The event records of one process, put together from its segments; and where its compact records are.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "ingest/block_runs.h"
#include "ingest/bytes.h"
#include "shim/trace/trace_format.h"

namespace whyrss {

struct EventRecord {
  std::uint64_t time_ns = 0;
  trace::RecordKind kind = trace::RecordKind::padding;
  Bytes bytes;              // the whole record
  std::uint64_t lease = 0;  // where it stood
  std::uint32_t offset = 0;
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

  // The front of the payload of a `blocks` frame. False when it is damaged.
  bool add_blocks(std::uint32_t frame, Bytes front, std::size_t payload_bytes);

  // By time; records of one thread that bear the same time stay in program order. Everything is added before.
  [[nodiscard]] std::vector<EventRecord> records();
  // Compact records are not in memory; valid after records().
  [[nodiscard]] const BlockRuns& runs() const { return runs_; }

  // Compact records that had to be given up.
  void count_unreadable(std::uint64_t records) { unreadable_records_ += records; }

  [[nodiscard]] bool empty() const { return pieces_.empty() && runs_.empty(); }
  [[nodiscard]] std::uint64_t lost_records() const;     // dropped by the writers
  [[nodiscard]] std::uint64_t missing_bytes() const;    // gaps between the segments of a lease
  [[nodiscard]] std::uint64_t damaged_records() const;  // found by records()
  [[nodiscard]] std::uint64_t untimed_records() const;  // compact ones without a clock, found by records()
  [[nodiscard]] std::uint64_t unreadable_records() const { return unreadable_records_; }

 private:
  struct Piece {
    std::uint64_t lease;
    std::uint32_t offset;
    Bytes bytes;
  };
  void read_piece(const Piece& piece, std::size_t skip, std::vector<EventRecord>& out);
  void note_lost(std::uint64_t lease, std::uint32_t lost_before);

  std::vector<Piece> pieces_;
  BlockRuns runs_;
  std::map<std::uint64_t, std::uint32_t> lost_before_;  // by lease, where it is not 0
  std::uint64_t missing_bytes_ = 0, damaged_records_ = 0, untimed_records_ = 0, unreadable_records_ = 0;
};

}  // namespace whyrss
