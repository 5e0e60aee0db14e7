#include "decode/event_stream.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "decode/segment_records.h"
#include "recording/lease_reader.h"

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

// Stable. Events come in pieces that hardly overlap: sorted where they lie, and merged where they do.
template <typename Key>
void sort_nearly_sorted(std::vector<EventRecord>& records, Key key) {
  constexpr std::size_t kPiece = 8192;
  const auto at = [&](std::size_t index) {
    return records.begin() + static_cast<std::ptrdiff_t>(std::min(index, records.size()));
  };
  for (std::size_t i = 0; i < records.size(); i += kPiece)
    if (!std::ranges::is_sorted(at(i), at(i + kPiece), {}, key))
      std::ranges::stable_sort(at(i), at(i + kPiece), {}, key);
  for (std::size_t width = kPiece; width < records.size(); width *= 2)
    for (std::size_t i = 0; i + width < records.size(); i += 2 * width) {
      const auto middle = at(i + width), end = at(i + 2 * width);
      const auto begin = std::ranges::upper_bound(at(i), middle, std::invoke(key, *middle), {}, key);
      if (begin == middle) continue;
      std::ranges::inplace_merge(
          begin, middle, std::ranges::lower_bound(middle, end, std::invoke(key, *std::prev(middle)), {}, key), {}, key);
    }
}

}  // namespace

void EventStream::note_lost(std::uint64_t lease, std::uint32_t lost_before) {
  if (lost_before == 0) return;
  std::uint32_t& lost = lost_before_[lease];
  lost = std::max(lost, lost_before);
}

// Most stacks lie in gaps of runs.
void EventStream::cover(std::uint64_t lease, std::uint32_t offset, std::uint32_t bytes) {
  if (bytes == 0 || runs_.covers(lease, offset, bytes)) return;
  if (!pieces_.empty() && pieces_.back().lease == lease && pieces_.back().offset + pieces_.back().bytes == offset)
    pieces_.back().bytes += bytes;
  else
    pieces_.push_back({lease, offset, bytes});
}

void EventStream::add_record(std::uint64_t lease, std::uint32_t offset, const trace::RecordHeader& header, Bytes bytes,
                             std::uint32_t frame) {
  using trace::RecordKind;
  if (header.kind == RecordKind::padding) return;
  const bool compact = header.kind == RecordKind::compact_allocate || header.kind == RecordKind::compact_release;
  if (compact) {
    records_.push_back({0, header.kind, offset, lease, {}});
    return;
  }
  first_ns_ = std::min(first_ns_.value_or(header.time_ns), header.time_ns);
  last_ns_ = std::max(last_ns_, header.time_ns);
  if (const auto id = stack_id_of(header, bytes)) {
    add_stack(stack_runs_, *id, frame, header.time_ns);
    if (frame == kLooseStack) loose_stacks_.try_emplace(*id, descriptions_.keep(bytes));
    return;
  }
  ByteArena& arena = is_description(header.kind) ? descriptions_ : bytes_;
  records_.push_back({header.time_ns, header.kind, offset, lease, arena.keep(bytes)});
}

void EventStream::add_segment(std::uint64_t lease, std::uint32_t offset, std::uint32_t lost_before, Bytes bytes,
                              std::uint32_t frame) {
  note_lost(lease, lost_before);
  cover(lease, offset, static_cast<std::uint32_t>(bytes.size()));
  std::uint32_t at = offset;
  const bool whole =
      visit_records(bytes, at, [&](std::uint32_t place, const trace::RecordHeader& header, Bytes record) {
        add_record(lease, place, header, record, frame);
      });
  if (!whole) records_.push_back({0, trace::RecordKind::padding, at, lease, {}});
}

bool EventStream::add_payload(std::uint32_t frame, Bytes payload) {
  return visit_segments(payload, [&](const trace::SegmentHeader& header, Bytes bytes) {
    add_segment(header.lease, header.offset, header.lost_before, bytes, frame);
  });
}

Bytes EventStream::loose_stack(std::uint32_t id) const {
  const auto found = loose_stacks_.find(id);
  return found != loose_stacks_.end() ? found->second : Bytes();
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

void EventStream::measure_gaps() {
  const auto place = [](const auto& part) { return std::pair(part.lease, part.offset); };
  std::ranges::stable_sort(pieces_, {}, place);
  Coverage coverage;
  auto run = runs_.all().begin();
  const auto cover_runs_before = [&](const Piece* piece) {
    for (; run != runs_.all().end() && (piece == nullptr || place(*run) < place(*piece)); ++run)
      coverage.add(run->lease, run->offset, run->bytes);
  };
  for (const Piece& piece : pieces_) {
    cover_runs_before(&piece);
    coverage.add(piece.lease, piece.offset, piece.bytes);
  }
  cover_runs_before(nullptr);
  missing_bytes_ = coverage.missing_bytes();
  pieces_ = std::vector<Piece>();
}

std::vector<EventRecord> EventStream::records() {
  runs_.sort();
  measure_gaps();
  stack_runs_.shrink_to_fit();
  std::vector<EventRecord> records = std::move(records_);
  const auto place = [](const EventRecord& record) { return std::pair(record.lease, record.offset); };
  sort_nearly_sorted(records, place);
  const auto is_again = [&](const EventRecord& left, const EventRecord& right) { return place(left) == place(right); };
  records.erase(std::unique(records.begin(), records.end(), is_again), records.end());
  damaged_records_ = untimed_records_ = 0;
  std::erase_if(records, [&](const EventRecord& record) {
    if (!record.bytes.empty()) return false;
    ++(record.kind == trace::RecordKind::padding ? damaged_records_ : untimed_records_);
    return true;
  });
  sort_nearly_sorted(records, &EventRecord::time_ns);
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
