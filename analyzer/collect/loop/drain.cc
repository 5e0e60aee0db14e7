#include "collect/loop/drain.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "collect/read/append_bytes.h"

namespace whyrss {
namespace {

using trace::RecordKind;

constexpr std::int64_t kOwnerCheckNs = 1'000'000'000;
constexpr std::int64_t kRetryNs = 1'000'000'000;
// One frame: large enough to compress well, small enough that a damaged one costs little.
constexpr std::size_t kFramePayloadBytes = 1024 * 1024;
constexpr std::size_t kBlocksPayloadBytes = 384 * 1024;  // about 70,000 events, 90 chunks
constexpr std::int64_t kAdviseFree = 8;                  // MADV_FREE

}  // namespace

Drain::Drain(trace::PoolView pool) : pool_(pool), chunks_(pool ? pool.header->chunk_count : 0), begun_(read_clocks()) {}

// With two readings of the clocks, which lie as far apart as they can.
void Drain::close_payload(Stream& stream) {
  const ClockReading now = read_clocks();
  stream.columns.add_clock(begun_.time_ns, begun_.ticks);
  stream.columns.add_clock(now.time_ns, now.ticks);
  const std::uint64_t events = stream.columns.event_count();
  stream.payloads.push_back({.bytes = stream.columns.take_payload(), .events = events});
}

void Drain::note_record(const trace::Segment& segment, const LeaseReader::Other& record) {
  const RecordKind kind = record.header.kind;
  ProcessEvent event{.process = {.pid = segment.pid, .start_ticks = segment.start_ticks}, .kind = kind};
  const auto read = [&record](auto& body) {
    if (record.bytes.size() < sizeof body) return false;
    std::memcpy(&body, record.bytes.data(), sizeof body);
    return true;
  };
  if (kind == RecordKind::fork || kind == RecordKind::exit || kind == RecordKind::spawn ||
      kind == RecordKind::teardown) {
    trace::ProcessRecord body;
    if (!read(body)) return;
    event.pid = body.pid;
    event.status = body.status;
  } else if (kind == RecordKind::advise) {
    trace::RangeRecord body;
    if (!read(body)) return;
    if (body.argument != kAdviseFree) return;  // what others give up is missing in RSS
  } else if (kind == RecordKind::mark) {
    trace::TextRecord body;
    if (!read(body)) return;
    const auto mark = static_cast<trace::MarkKind>(body.argument);
    event.asks_all = mark == trace::MarkKind::snapshot;
    if (!event.asks_all && mark != trace::MarkKind::phase_begin && mark != trace::MarkKind::phase_end) return;
  } else if (kind == RecordKind::shared_file) {
    trace::SharedFileRecord body;
    if (!read(body)) return;
    event.file = {body.device_major, body.device_minor, body.inode};
    if (body.device_major == 0 && body.device_minor == 0) return;  // a System V segment
  } else if (kind == RecordKind::no_uffd_handoff) {
    // The kind says it all.
  } else if (kind == RecordKind::attach) {
    trace::AttachRecord body;
    if (!read(body)) return;
    // An exec ends all other threads: what they still had leased has no owner any more.
    if (body.born == trace::Born::exec) {
      auto& newest = newest_image_[event.process];
      newest = std::max(newest, segment.lease);
    }
  } else {
    return;
  }
  process_events_.push_back(event);
}

void Drain::scan(const trace::Segment& segment, Chunk& chunk, BlockColumns& columns) {
  const std::uint32_t begin = std::max(chunk.scanned.offset, segment.offset);
  const std::uint32_t end = segment.offset + static_cast<std::uint32_t>(segment.bytes.size());
  if (begin >= end) return;
  chunk.scanned.offset = begin;
  const std::uint64_t events_before = columns.event_count();
  LeaseReader reader(segment.bytes.subspan(begin - segment.offset),
                     {.tid = segment.tid, .lost_before = segment.lost_before}, chunk.scanned, columns);
  while (const auto record = reader.next()) {
    if (!record->damaged) note_record(segment, *record);
    const auto bytes = static_cast<std::uint32_t>(record->bytes.size());
    if (chunk.pieces.empty() || chunk.pieces.back().offset + chunk.pieces.back().bytes != record->offset)
      chunk.pieces.push_back({.offset = record->offset, .bytes = 0, .records = 0});
    chunk.pieces.back().bytes += bytes;
    ++chunk.pieces.back().records;
  }
  chunk.scanned.offset = end;
  compact_records_ += columns.event_count() - events_before;
}

Status Drain::store_pieces(std::int64_t now_ns, std::vector<Pending>& pending, ProcessFollow& process) {
  std::ranges::sort(pending, {},
                    [](const Pending& entry) { return std::pair(entry.segment.lease, entry.segment.offset); });
  std::vector<std::byte> payload;
  std::size_t first = 0;
  for (std::size_t i = 0; i < pending.size(); ++i) {
    const trace::Segment& segment = pending[i].segment;
    const std::byte* chunk = pool_.data + std::size_t{segment.chunk_index} * trace::kChunkBytes;
    for (const Piece& piece : chunks_[segment.chunk_index].pieces) {
      const trace::SegmentHeader header{.lease = segment.lease,
                                        .offset = piece.offset,
                                        .bytes = piece.bytes,
                                        .tid = segment.tid,
                                        .lost_before = segment.lost_before};
      append_bytes(payload, &header, sizeof header);
      append_bytes(payload, chunk + piece.offset, piece.bytes);
    }
    if (i + 1 < pending.size() && payload.size() < kFramePayloadBytes) continue;
    if (!payload.empty()) {
      if (Status stored = process.append_segments(now_ns, payload); !stored) return stored;
    }
    payload.clear();
    for (; first <= i; ++first) chunks_[pending[first].segment.chunk_index].pieces.clear();
  }
  return Done{};
}

Status Drain::store_payloads(std::int64_t now_ns, Stream& stream, ProcessFollow& process) {
  if (!stream.columns.empty()) close_payload(stream);
  std::size_t stored_count = 0;
  Status result = Done{};
  for (; stored_count < stream.payloads.size(); ++stored_count) {
    result = process.append_blocks(now_ns, stream.payloads[stored_count].bytes);
    if (!result) break;
  }
  stream.payloads.erase(stream.payloads.begin(), stream.payloads.begin() + static_cast<std::ptrdiff_t>(stored_count));
  return result;
}

void Drain::give_up(Stream& stream, const std::vector<Pending>& pending, ProcessFollow& process, const Error& why) {
  std::uint64_t events = 0;
  for (const Pending& entry : pending) {
    std::vector<Piece>& pieces = chunks_[entry.segment.chunk_index].pieces;
    for (const Piece& piece : pieces) events += piece.records;
    pieces.clear();
  }
  if (!stream.columns.empty()) close_payload(stream);
  for (const Payload& payload : stream.payloads) events += payload.events;
  stream.payloads.clear();
  process.lose_events(events, why);
}

void Drain::store(std::int64_t now_ns, ProcessKey key, Stream& stream, const Target& target, OnError on_error) {
  std::vector<Pending> pending = std::exchange(stream.pending, {});
  stream.due = false;
  ProcessFollow* process = target(key);
  if (process == nullptr) return;
  for (const Pending& entry : pending) chunks_[entry.segment.chunk_index].first_seen_ns = now_ns;
  Status stored = store_pieces(now_ns, pending, *process);
  if (stored) stored = store_payloads(now_ns, stream, *process);
  stream.retry_ns = stored ? 0 : now_ns + kRetryNs;
  if (!stored && on_error == OnError::keep) return;
  if (!stored) give_up(stream, pending, *process, stored.failure());
  // Only now: a kill in between stores a segment twice, never not at all.
  for (const Pending& entry : pending) finish_segment(pool_, entry.segment, entry.owner_gone);
}

bool Drain::scan_chunk(std::uint32_t index, std::int64_t now_ns, const std::set<ProcessKey>& ended, bool everything,
                       const ThreadGone& thread_gone) {
  const trace::ChunkHeader& header = pool_.chunks[index];
  const auto state = header.state.load(std::memory_order_acquire);
  if (state == trace::ChunkState::free) ++free_chunks_;
  if (state == trace::ChunkState::bare) ++bare_chunks_;
  if (state != trace::ChunkState::leased && state != trace::ChunkState::sealed) return false;
  Chunk& chunk = chunks_[index];
  const ProcessKey key{.pid = header.pid, .start_ticks = header.start_ticks};
  // Asked before the published length is read: what comes later can only be another lease.
  bool owner_gone = false;
  const bool now = everything || ended.contains(key);
  const bool check = now || now_ns - chunk.owner_checked_ns >= kOwnerCheckNs;
  if (state == trace::ChunkState::leased && check) {
    chunk.owner_checked_ns = now_ns;
    const auto image = newest_image_.find(key);
    const bool old_image = image != newest_image_.end() && header.lease.load() < image->second;
    owner_gone = old_image || thread_gone(key, header.tid);
  }
  const trace::Segment segment = trace::next_segment(pool_, index);
  if (segment.lease == 0) return true;
  if (segment.lease != chunk.scanned.lease) {
    chunk.scanned = {.lease = segment.lease, .offset = 0, .timed = false, .ticks = 0};
    chunk.pieces.clear();
    chunk.first_seen_ns = chunk.owner_checked_ns = now_ns;
  }
  if (segment.bytes.empty()) {
    if (segment.sealed || owner_gone) finish_segment(pool_, segment, owner_gone);
    chunk.first_seen_ns = now_ns;
    return true;
  }
  Stream& stream = streams_[key];
  scan(segment, chunk, stream.columns);
  stream.pending.push_back({.segment = segment, .owner_gone = owner_gone});
  const bool old = now_ns - chunk.first_seen_ns >= store_after_ns_;
  stream.due = stream.due || now || segment.sealed || owner_gone || old;
  if (stream.columns.payload_bytes() >= kBlocksPayloadBytes) {
    close_payload(stream);
    full_ = key;
  }
  return true;
}

std::uint64_t Drain::left_bytes() const {
  std::uint64_t bytes = 0;
  for (std::uint32_t index = 0; index < chunks_.size(); ++index)
    bytes += trace::next_segment(pool_, index).bytes.size();
  return bytes;
}

void Drain::round(std::int64_t now_ns, const std::set<ProcessKey>& ended, bool everything, const Target& target,
                  const ThreadGone& thread_gone) {
  std::size_t used = 0;
  free_chunks_ = bare_chunks_ = 0;
  for (std::uint32_t index = 0; index < chunks_.size(); ++index) {
    if (scan_chunk(index, now_ns, ended, everything, thread_gone)) ++used;
    // A writer may wait for a chunk, and the ones that come back soon are still in cache.
    if (full_) store(now_ns, *full_, streams_[*full_], target, OnError::keep);
    full_.reset();
  }
  const bool crowded = used * 4 > chunks_.size() - (can_grow_ ? 0 : bare_chunks_);
  for (auto stream = streams_.begin(); stream != streams_.end();) {
    auto& [key, of_process] = *stream;
    const bool last_chance = everything || ended.contains(key);
    const bool due = (of_process.due || store_all_) && now_ns >= of_process.retry_ns;
    if (!of_process.pending.empty() && (crowded || last_chance || due))
      store(now_ns, key, of_process, target, crowded || last_chance ? OnError::give_up : OnError::keep);
    of_process.pending.clear();
    of_process.due = false;
    const bool is_over = last_chance && of_process.columns.empty() && of_process.payloads.empty();
    stream = is_over ? streams_.erase(stream) : std::next(stream);
  }
  store_all_ = false;
}

}  // namespace whyrss
