// The event records of one process, put together from its segments; and where its compact records and its stack records
// are.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "decode/block_runs.h"
#include "decode/byte_arena.h"
#include "decode/bytes.h"
#include "decode/stack_places.h"
#include "shim/trace/trace_format.h"

namespace whyrss {

struct EventRecord {
  std::uint64_t time_ns = 0;
  trace::RecordKind kind = trace::RecordKind::padding;
  std::uint32_t offset = 0;  // where it stood, in:
  std::uint64_t lease = 0;
  Bytes bytes;  // the whole record
};

// The fixed part of a record; false when the record is shorter.
template <typename T>
bool read_record(const EventRecord& record, T& value) {
  return ByteReader(record.bytes).take(value);
}

// Keeps copies of all records but those that recordings may have millions of: stacks, and compact ones.
class EventStream {
 public:
  // A piece of a chunk. The same bytes may come again (after a kill of the collector, or from the pool):
  // the first ones count. `frame`: where its stacks can be read again.
  void add_segment(std::uint64_t lease, std::uint32_t offset, std::uint32_t lost_before, Bytes bytes,
                   std::uint32_t frame = kLooseStack);

  // The payload of segment frame number `frame`: several segments. False when it is damaged; what came before counts.
  bool add_payload(std::uint32_t frame, Bytes payload);

  // The front of the payload of a `blocks` frame. False when it is damaged.
  bool add_blocks(std::uint32_t frame, Bytes front, std::size_t payload_bytes);
  // All of them are added: from now on it is not kept of each segment where it stood, if it lies in one of their runs.
  void end_blocks() { runs_.sort(); }

  // To be asked once, when everything is added. By time; records of one thread with the same time stay in program
  // order. Stack records are not among them.
  [[nodiscard]] std::vector<EventRecord> records();
  // Only the bytes of descriptions (recording/lease_reader.h) are needed from now on.
  void release_bytes() { bytes_ = {}; }
  [[nodiscard]] const std::vector<StackRun>& stack_runs() const { return stack_runs_; }
  // Of kLooseStack; empty: there is none.
  [[nodiscard]] Bytes loose_stack(std::uint32_t id) const;
  // When the first and the last record was written; nothing before records() and where there is none.
  [[nodiscard]] std::optional<std::uint64_t> first_ns() const { return first_ns_; }
  [[nodiscard]] std::uint64_t last_ns() const { return last_ns_; }
  // Compact records are not in memory; valid after records().
  [[nodiscard]] const BlockRuns& runs() const { return runs_; }

  // Compact records that had to be given up.
  void count_unreadable(std::uint64_t records) { unreadable_records_ += records; }

  // Nothing was added yet.
  [[nodiscard]] bool empty() const { return pieces_.empty() && runs_.empty(); }
  [[nodiscard]] std::uint64_t lost_records() const;     // dropped by the writers
  [[nodiscard]] std::uint64_t missing_bytes() const;    // gaps between the segments of a lease
  [[nodiscard]] std::uint64_t damaged_records() const;  // found by records()
  [[nodiscard]] std::uint64_t untimed_records() const;  // compact ones without a clock, found by records()
  [[nodiscard]] std::uint64_t unreadable_records() const { return unreadable_records_; }

 private:
  struct Piece {
    std::uint64_t lease;
    std::uint32_t offset, bytes;
  };
  void cover(std::uint64_t lease, std::uint32_t offset, std::uint32_t bytes);
  void add_record(std::uint64_t lease, std::uint32_t offset, const trace::RecordHeader& header, Bytes bytes,
                  std::uint32_t frame);
  void note_lost(std::uint64_t lease, std::uint32_t lost_before);
  void measure_gaps();

  ByteArena descriptions_, bytes_;    // of descriptions and loose stacks, and of all other records
  std::vector<EventRecord> records_;  // as they came; those of kind `padding` are damaged
  std::vector<Piece> pieces_;         // that no run covers, neighbours joined
  std::vector<StackRun> stack_runs_;
  std::unordered_map<std::uint32_t, Bytes> loose_stacks_;
  BlockRuns runs_;
  std::map<std::uint64_t, std::uint32_t> lost_before_;  // by lease, where it is not 0
  std::uint64_t missing_bytes_ = 0, damaged_records_ = 0, untimed_records_ = 0, unreadable_records_ = 0;
  std::optional<std::uint64_t> first_ns_;
  std::uint64_t last_ns_ = 0;
};

}  // namespace whyrss
