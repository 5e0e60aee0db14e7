#include "ingest/event_stream.h"

#include <algorithm>
#include <utility>

#include "shim/trace/pool.h"
#include "shim/trace/recording_format.h"

namespace whyrss {
namespace {

// How far the bytes of one lease are there, from its start on.
class Coverage {
 public:
  // In order of (lease, offset).
  void add(std::uint64_t lease, std::uint32_t offset, std::size_t bytes) {
    if (lease != lease_) {
      lease_ = lease;
      done_ = 0;
    }
    if (offset > done_) missing_bytes_ += offset - done_;
    done_ = std::max(done_, std::uint64_t{offset} + bytes);
  }
  [[nodiscard]] std::uint64_t missing_bytes() const { return missing_bytes_; }

 private:
  std::uint64_t lease_ = 0, done_ = 0, missing_bytes_ = 0;
};

}  // namespace

void EventStream::note_lost(std::uint64_t lease, std::uint32_t lost_before) {
  if (lost_before == 0) return;
  std::uint32_t& lost = lost_before_[lease];
  lost = std::max(lost, lost_before);
}

void EventStream::add_segment(std::uint64_t lease, std::uint32_t offset, std::uint32_t lost_before, Bytes bytes) {
  note_lost(lease, lost_before);
  if (!bytes.empty()) pieces_.push_back({lease, offset, bytes});
}

bool EventStream::add_payload(Bytes payload) {
  ByteReader reader(payload);
  while (!reader.rest().empty()) {
    trace::SegmentHeader header{};
    if (!reader.take(header) || header.bytes > trace::kChunkBytes || header.offset > trace::kChunkBytes) return false;
    const Bytes bytes = reader.take_bytes(header.bytes);
    if (reader.bad()) return false;
    add_segment(header.lease, header.offset, header.lost_before, bytes);
  }
  return true;
}

bool EventStream::add_blocks(std::uint32_t frame, Bytes front, std::size_t payload_bytes) {
  PayloadRuns of_payload;
  if (!read_runs(front, payload_bytes, of_payload)) return false;
  const std::vector<BlockRun>& runs = of_payload.runs;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    note_lost(runs[i].lease, runs[i].lost_before);
    runs_.add(runs[i], frame, static_cast<std::uint32_t>(i));
  }
  return true;
}

void EventStream::read_piece(const Piece& piece, std::size_t skip, std::vector<EventRecord>& out) {
  Bytes bytes = piece.bytes.subspan(skip);
  std::uint32_t offset = piece.offset + static_cast<std::uint32_t>(skip);
  while (!bytes.empty()) {
    trace::RecordHeader header{};
    if (!ByteReader(bytes).take(header) || header.size_bytes < sizeof header || header.size_bytes % 8 != 0 ||
        header.size_bytes > bytes.size()) {
      ++damaged_records_;
      return;  // without its size nobody knows where the next one begins
    }
    const bool compact =
        header.kind == trace::RecordKind::compact_allocate || header.kind == trace::RecordKind::compact_release;
    if (compact)
      ++untimed_records_;
    else if (header.kind != trace::RecordKind::padding)
      out.push_back({header.time_ns, header.kind, bytes.first(header.size_bytes), piece.lease, offset});
    bytes = bytes.subspan(header.size_bytes);
    offset += header.size_bytes;
  }
}

std::vector<EventRecord> EventStream::records() {
  std::vector<EventRecord> records;
  damaged_records_ = untimed_records_ = 0;
  const auto place = [](const auto& part) { return std::pair(part.lease, part.offset); };
  std::ranges::stable_sort(pieces_, {}, place);
  runs_.sort();
  Coverage coverage;
  auto run = runs_.all().begin();
  const auto cover_runs_before = [&](const Piece* piece) {
    for (; run != runs_.all().end() && (piece == nullptr || place(*run) < place(*piece)); ++run)
      coverage.add(run->lease, run->offset, run->bytes);
  };
  std::uint64_t lease = 0, done = 0;
  for (const Piece& piece : pieces_) {
    cover_runs_before(&piece);
    coverage.add(piece.lease, piece.offset, piece.bytes.size());
    if (piece.lease != lease) done = 0;
    lease = piece.lease;
    const std::uint64_t end = std::uint64_t{piece.offset} + piece.bytes.size();
    if (end <= done) continue;
    read_piece(piece, done > piece.offset ? static_cast<std::size_t>(done - piece.offset) : 0, records);
    done = end;
  }
  cover_runs_before(nullptr);
  missing_bytes_ = coverage.missing_bytes();
  std::ranges::stable_sort(records, {}, &EventRecord::time_ns);
  return records;
}

std::uint64_t EventStream::lost_records() const {
  std::uint64_t lost = 0;
  for (const auto& [lease, records] : lost_before_) lost += records;
  return lost;
}

std::uint64_t EventStream::missing_bytes() const { return missing_bytes_; }
std::uint64_t EventStream::damaged_records() const { return damaged_records_; }
std::uint64_t EventStream::untimed_records() const { return untimed_records_; }

}  // namespace whyrss
