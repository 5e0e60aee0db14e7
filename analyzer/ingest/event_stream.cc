#include "ingest/event_stream.h"

#include <algorithm>

#include "shim/trace/pool.h"
#include "shim/trace/recording_format.h"

namespace whyrss {

void EventStream::add_segment(std::uint64_t lease, std::uint32_t offset, std::uint32_t lost_before, Bytes bytes) {
  Lease& known = leases_[lease];
  known.lost_before = std::max(known.lost_before, lost_before);
  if (!bytes.empty()) known.pieces.push_back({offset, bytes});
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

void EventStream::read_piece(Bytes bytes, std::vector<EventRecord>& out) {
  while (!bytes.empty()) {
    trace::RecordHeader header{};
    if (!ByteReader(bytes).take(header) || header.size_bytes < sizeof header || header.size_bytes % 8 != 0 ||
        header.size_bytes > bytes.size()) {
      ++damaged_records_;
      return;  // without its size nobody knows where the next one begins
    }
    if (header.kind != trace::RecordKind::padding)
      out.push_back({header.time_ns, header.kind, bytes.first(header.size_bytes)});
    bytes = bytes.subspan(header.size_bytes);
  }
}

std::vector<EventRecord> EventStream::records() {
  std::vector<EventRecord> records;
  missing_bytes_ = 0;
  damaged_records_ = 0;
  for (auto& [lease, known] : leases_) {
    std::ranges::stable_sort(known.pieces, {}, &Piece::offset);
    std::uint64_t done = 0;
    for (const Piece& piece : known.pieces) {
      const std::uint64_t end = std::uint64_t{piece.offset} + piece.bytes.size();
      if (end <= done) continue;
      const std::uint64_t skip = done > piece.offset ? done - piece.offset : 0;
      if (piece.offset > done) missing_bytes_ += piece.offset - done;
      read_piece(piece.bytes.subspan(skip), records);
      done = end;
    }
  }
  std::ranges::stable_sort(records, {}, &EventRecord::time_ns);
  return records;
}

std::uint64_t EventStream::lost_records() const {
  std::uint64_t lost = 0;
  for (const auto& [lease, known] : leases_) lost += known.lost_before;
  return lost;
}

std::uint64_t EventStream::missing_bytes() const { return missing_bytes_; }
std::uint64_t EventStream::damaged_records() const { return damaged_records_; }

}  // namespace whyrss
