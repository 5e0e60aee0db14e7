#include "ingest/pool_leftovers.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <new>

#include "recording/lease_reader.h"
#include "support/file.h"
#include "support/text.h"

namespace whyrss {
namespace {

constexpr std::align_val_t kPoolAlignment{alignof(trace::PoolHeader)};
constexpr std::int64_t kMostPoolBytes = 4LL * 1024 * 1024 * 1024;

}  // namespace

void PoolCopy::Free::operator()(std::byte* bytes) const { ::operator delete(bytes, kPoolAlignment); }

std::optional<PoolCopy> PoolCopy::read(const std::string& path, const std::string& session) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat status {};
  if (!fd || fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  if (status.st_size < static_cast<off_t>(sizeof(trace::PoolHeader)) || status.st_size > kMostPoolBytes)
    return std::nullopt;
  const auto size_bytes = static_cast<std::size_t>(status.st_size);
  PoolCopy copy;
  copy.bytes_.reset(static_cast<std::byte*>(::operator new(size_bytes, kPoolAlignment)));
  std::size_t used = 0;
  while (used < size_bytes) {
    const ssize_t got = pread(fd.get(), copy.bytes_.get() + used, size_bytes - used, static_cast<off_t>(used));
    if (got <= 0) return std::nullopt;
    used += static_cast<std::size_t>(got);
  }
  copy.pool_ = trace::open_pool(copy.bytes_.get(), size_bytes);
  if (!copy.pool_) return std::nullopt;
  const trace::SessionId& id = copy.pool_.header->session;
  if (hex32(id.high, id.low) != session) return std::nullopt;
  return copy;
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
  // Where its start is damaged, from what nobody has yet.
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
