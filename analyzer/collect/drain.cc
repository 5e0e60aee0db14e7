#include "collect/drain.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace whyrss {
namespace {

using trace::RecordKind;

// Longest that published bytes stay only in the pool, which a container may take along at its end.
constexpr std::int64_t kStoreAfterNs = 1'000'000'000;
constexpr std::int64_t kOwnerCheckNs = 1'000'000'000;
// One frame: large enough to compress well, small enough that a damaged one costs little.
constexpr std::size_t kFramePayloadBytes = 1024 * 1024;
constexpr std::int64_t kAdviseFree = 8;  // MADV_FREE
constexpr std::uint64_t kLargeAdviceBytes = 1024 * 1024;

void append_bytes(std::vector<std::byte>& out, const void* from, std::size_t size) {
  const auto* bytes = static_cast<const std::byte*>(from);
  out.insert(out.end(), bytes, bytes + size);
}

}  // namespace

Drain::Drain(trace::PoolView pool) : pool_(pool), chunks_(pool ? pool.header->chunk_count : 0) {}

void Drain::note_record(const trace::Segment& segment, std::span<const std::byte> record, RecordKind kind) {
  Happening happening{.process = {.pid = segment.pid, .start_ticks = segment.start_ticks}, .kind = kind};
  if (kind == RecordKind::fork || kind == RecordKind::exit || kind == RecordKind::spawn ||
      kind == RecordKind::teardown) {
    trace::ProcessRecord body;
    if (record.size() < sizeof body) return;
    std::memcpy(&body, record.data(), sizeof body);
    happening.pid = body.pid;
    happening.status = body.status;
  } else if (kind == RecordKind::advise) {
    trace::RangeRecord body;
    if (record.size() < sizeof body) return;
    std::memcpy(&body, record.data(), sizeof body);
    if (body.argument != kAdviseFree && body.size_bytes < kLargeAdviceBytes) return;
  } else if (kind == RecordKind::attach) {
    trace::AttachRecord body;
    if (record.size() < sizeof body) return;
    std::memcpy(&body, record.data(), sizeof body);
    // An exec ends all other threads: what they still had leased has no owner any more.
    if (body.born == trace::Born::exec) {
      auto& newest = newest_image_[happening.process];
      newest = std::max(newest, segment.lease);
    }
  } else {
    return;
  }
  happenings_.push_back(happening);
}

void Drain::look(const trace::Segment& segment, std::span<const std::byte> bytes, Chunk& chunk) {
  std::size_t at = chunk.looked > segment.offset ? chunk.looked - segment.offset : 0;
  while (at + sizeof(trace::RecordHeader) <= bytes.size()) {
    trace::RecordHeader header;
    std::memcpy(&header, bytes.data() + at, sizeof header);
    if (header.size_bytes < sizeof header || header.size_bytes > bytes.size() - at) break;  // scribbled
    note_record(segment, bytes.subspan(at, header.size_bytes), header.kind);
    at += trace::padded(header.size_bytes);
  }
  chunk.looked = segment.offset + static_cast<std::uint32_t>(bytes.size());
}

Status Drain::store(std::int64_t now_ns, std::vector<Pending>& segments, ProcessFollow& process) {
  std::ranges::sort(segments, {},
                    [](const Pending& pending) { return std::pair(pending.segment.lease, pending.segment.offset); });
  std::vector<std::byte> payload;
  for (std::size_t first = 0; first < segments.size();) {
    payload.clear();
    std::size_t end = first;
    while (end < segments.size() && (end == first || payload.size() < kFramePayloadBytes)) {
      const trace::Segment& segment = segments[end++].segment;
      const trace::SegmentHeader header{.lease = segment.lease,
                                        .offset = segment.offset,
                                        .bytes = static_cast<std::uint32_t>(segment.bytes.size()),
                                        .tid = segment.tid,
                                        .lost_before = segment.lost_before};
      append_bytes(payload, &header, sizeof header);
      append_bytes(payload, segment.bytes.data(), segment.bytes.size());
    }
    if (Status stored = process.append_segments(now_ns, payload); !stored) return stored;
    stored_bytes_ += payload.size();
    // Only now: a kill in between stores a segment twice, never not at all.
    for (; first < end; ++first) finish_segment(pool_, segments[first].segment, segments[first].owner_gone);
  }
  return Done{};
}

Status Drain::round(std::int64_t now_ns, const std::set<ProcessKey>& ended, bool everything, const Target& target,
                    const ThreadGone& thread_gone) {
  std::map<ProcessKey, std::vector<Pending>> pending;
  std::set<ProcessKey> due;
  std::size_t used = 0;
  std::vector<std::byte> copy;
  for (std::uint32_t index = 0; index < chunks_.size(); ++index) {
    const trace::ChunkHeader& header = pool_.chunks[index];
    const auto state = header.state.load(std::memory_order_acquire);
    if (state != trace::ChunkState::leased && state != trace::ChunkState::sealed) continue;
    ++used;
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
    if (segment.lease == 0) continue;
    if (segment.lease != chunk.lease)
      chunk = {.lease = segment.lease, .looked = 0, .first_seen_ns = now_ns, .owner_checked_ns = now_ns};
    if (segment.bytes.empty()) {
      if (segment.sealed || owner_gone) finish_segment(pool_, segment, owner_gone);
      chunk.first_seen_ns = now_ns;
      continue;
    }
    copy.assign(segment.bytes.begin(), segment.bytes.end());
    look(segment, copy, chunk);
    pending[key].push_back({.segment = segment, .owner_gone = owner_gone});
    if (now || segment.sealed || owner_gone || now_ns - chunk.first_seen_ns >= kStoreAfterNs) due.insert(key);
  }
  const bool crowded = used * 4 > chunks_.size();
  Status result = Done{};
  for (auto& [key, segments] : pending) {
    if (!crowded && !due.contains(key)) continue;
    ProcessFollow* process = target(key);
    if (process == nullptr) continue;
    for (const Pending& entry : segments) chunks_[entry.segment.chunk_index].first_seen_ns = now_ns;
    if (Status stored = store(now_ns, segments, *process); !stored) result = stored;
  }
  return result;
}

}  // namespace whyrss
