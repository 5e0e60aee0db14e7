#include "load/pool_leftovers.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <new>
#include <span>
#include <vector>

#include "recording/lease_reader.h"
#include "support/folder.h"
#include "support/text.h"

namespace whyrss {
namespace {

constexpr std::align_val_t kPoolAlignment{alignof(trace::PoolHeader)};
// The collector's has 16 MiB.
constexpr std::uint64_t kMostPoolBytes = 256UL << 20;

bool read_at(const Fd& fd, std::byte* bytes, std::size_t size_bytes, std::uint64_t offset = 0) {
  for (std::size_t used = 0; used < size_bytes;) {
    const ssize_t got = pread(fd.get(), bytes + used, size_bytes - used, static_cast<off_t>(offset + used));
    if (got <= 0) return false;
    used += static_cast<std::size_t>(got);
  }
  return true;
}

// By what its header says, before room for the rest is made.
bool is_pool_of(const Fd& fd, std::uint64_t size_bytes, const std::string& session) {
  if (size_bytes < sizeof(trace::PoolHeader) || size_bytes > kMostPoolBytes) return false;
  alignas(trace::PoolHeader) std::array<std::byte, sizeof(trace::PoolHeader)> bytes{};
  if (!read_at(fd, bytes.data(), bytes.size())) return false;
  const auto* header = reinterpret_cast<const trace::PoolHeader*>(bytes.data());
  return header->magic == trace::kPoolMagic && header->total_bytes == size_bytes &&
         hex32(header->session.high, header->session.low) == session;
}

}  // namespace

void PoolCopy::Free::operator()(std::byte* bytes) const { ::operator delete(bytes, kPoolAlignment); }

Result<PoolCopy> PoolCopy::read(const Fd& fd, const std::string& session) {
  const std::uint64_t size_bytes = status_of(fd).size_bytes;
  if (!is_pool_of(fd, size_bytes, session)) return Error{"it does not belong to this recording"};
  PoolCopy copy;
  copy.bytes_.reset(static_cast<std::byte*>(::operator new(size_bytes, kPoolAlignment)));
  if (!read_at(fd, copy.bytes_.get(), size_bytes)) return Error{"it cannot be read"};
  copy.pool_ = trace::open_pool(copy.bytes_.get(), size_bytes);
  // Its owner may have written meanwhile.
  if (!copy.pool_ || hex32(copy.pool_.header->session.high, copy.pool_.header->session.low) != session)
    return Error{"it is damaged, or of another version"};
  return copy.drop_what_changed(fd) ? Result<PoolCopy>(std::move(copy)) : Error{"it cannot be read"};
}

// Of a chunk whose writer took a record back while it was copied only what the collector has read is certain.
bool PoolCopy::drop_what_changed(const Fd& fd) {
  const trace::PoolHeader& header = *pool_.header;
  std::vector<trace::ChunkHeader> now(header.chunk_count);
  if (!read_at(fd, reinterpret_cast<std::byte*>(now.data()), std::span(now).size_bytes(), header.chunk_headers_offset))
    return false;
  for (std::uint32_t i = 0; i < header.chunk_count; ++i)
    if (trace::ChunkHeader& then = pool_.chunks[i]; now[i].retracted.load() != then.retracted.load())
      then.committed.store(then.claimed.load());
  return true;
}

std::uint64_t PoolCopy::add_to(std::vector<std::unique_ptr<ProcessInput>>& inputs) const {
  std::uint64_t bytes = 0;
  std::map<ProcessInput*, BlockColumns> columns;
  for (std::uint32_t i = 0; i < pool_.header->chunk_count; ++i) {
    const trace::Segment segment = trace::next_segment(pool_, i);
    if (segment.bytes.empty()) continue;
    auto owner = std::ranges::find_if(inputs, [&](const auto& input) {
      return input->pid == segment.pid && input->start_ticks == segment.start_ticks;
    });
    if (owner == inputs.end()) {
      auto added = std::make_unique<ProcessInput>();
      added->pid = segment.pid;
      added->start_ticks = segment.start_ticks;
      owner = inputs.insert(inputs.end(), std::move(added));
    }
    add_segment(segment, (*owner)->stream, columns[owner->get()]);
    bytes += segment.bytes.size();
  }
  add_counts(inputs);
  for (auto& [input, of_process] : columns) {
    if (of_process.empty()) continue;
    auto payload = of_process.take_payload();
    input->events.frames.push_back({.kind = trace::FrameKind::blocks, .payload = std::move(payload)});
  }
  return bytes;
}

// What a process dropped since its collector was killed only its slot tells.
void PoolCopy::add_counts(std::vector<std::unique_ptr<ProcessInput>>& inputs) const {
  constexpr std::uint64_t kMostRecords = std::uint64_t{1} << 48;
  for (std::uint32_t i = 0; i < pool_.header->slot_count; ++i) {
    const trace::ProcessSlot& slot = pool_.slots[i];
    if (slot.state.load(std::memory_order_relaxed) != trace::SlotState::live) continue;
    const std::uint64_t dropped = slot.dropped_records.load(std::memory_order_relaxed);
    for (const auto& input : inputs)
      if (input->pid == slot.pid && input->start_ticks == slot.start_ticks)
        input->dropped_records = static_cast<std::int64_t>(std::min(dropped, kMostRecords));
  }
}

// Compact records have their time from the start of their chunk on: all of it is read again, and what the recording
// has already is left out there.
void PoolCopy::add_segment(const trace::Segment& segment, EventStream& stream, BlockColumns& columns) {
  stream.add_segment(segment.lease, segment.offset, segment.lost_before, {});
  // Where its start is damaged, from what the recording does not have yet.
  for (const std::uint32_t from : {0U, segment.offset}) {
    LeaseProgress progress{.lease = segment.lease, .offset = from, .timed = false, .ticks = 0};
    const std::byte* chunk = segment.bytes.data() - segment.offset;
    LeaseReader reader(std::span(chunk + from, segment.offset + segment.bytes.size() - from),
                       {.tid = segment.tid, .lost_before = segment.lost_before}, progress, columns);
    bool start_damaged = false;
    while (const auto record = reader.next()) {
      if (record->offset >= segment.offset)
        stream.add_segment(segment.lease, record->offset, segment.lost_before, record->bytes);
      else
        start_damaged = start_damaged || record->damaged;
    }
    if (!start_damaged) return;
  }
}

}  // namespace whyrss
