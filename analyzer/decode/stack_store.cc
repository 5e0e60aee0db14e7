#include "decode/stack_store.h"

#include <algorithm>
#include <iterator>

#include "decode/segment_records.h"
#include "support/file.h"

namespace whyrss {
namespace {

// For some threads in each of several processes; a frame has 64 KiB to 1 MiB.
constexpr std::size_t kMostLoadedBytes = 32UL * 1024 * 1024;

}  // namespace

void StackStore::make_room() {
  while (loaded_bytes_ > kMostLoadedBytes && loaded_.size() > 1) {
    loaded_bytes_ -= loaded_.back().payload.size();
    by_key_.erase(loaded_.back().key);
    loaded_.pop_back();
  }
}

StackStore::Loaded& StackStore::load(const Key& key) {
  if (const auto found = by_key_.find(key); found != by_key_.end()) {
    loaded_.splice(loaded_.begin(), loaded_, found->second);
    return loaded_.front();
  }
  Loaded& loaded = loaded_.emplace_front();
  loaded.key = key;
  by_key_[key] = loaded_.begin();
  const RawFrame& frame = key.first->frames[key.second];
  const Fd fd = frame.stored_at != 0 ? key.first->reopen() : Fd();
  if (const auto payload = loaded.buffer.load(frame, fd.get())) loaded.payload = *payload;
  visit_segments(loaded.payload, [&](const trace::SegmentHeader& header, Bytes bytes) {
    std::uint32_t offset = header.offset;
    visit_records(bytes, offset, [&](std::uint32_t, const trace::RecordHeader& record, Bytes whole) {
      if (const auto id = stack_id_of(record, whole))
        loaded.places.push_back({*id, static_cast<std::uint32_t>(whole.data() - loaded.payload.data()),
                                 static_cast<std::uint32_t>(whole.size()), record.time_ns});
    });
  });
  std::ranges::stable_sort(loaded.places, {}, &Place::id);
  loaded_bytes_ += loaded.payload.size();
  make_room();
  return loaded;
}

Bytes StackStore::read(const FrameFile& file, std::uint32_t frame, std::uint32_t id, std::uint64_t from_ns) {
  if (frame >= file.frames.size()) return {};
  const Loaded& loaded = load({&file, frame});
  auto found = std::ranges::lower_bound(loaded.places, id, {}, &Place::id);
  while (found != loaded.places.end() && found->id == id && found->time_ns < from_ns) ++found;
  if (found == loaded.places.end() || found->id != id) return {};
  return loaded.payload.subspan(found->at, found->size_bytes);
}

void StackStore::visit(const FrameFile& file, const StackRun& run, const std::function<void(const StackRun&)>& visit) {
  if (run.frame >= file.frames.size()) return;
  const Loaded& loaded = load({&file, run.frame});
  for (const Place& place : loaded.places) {
    if (place.id < run.first_id || place.id > run.last_id) continue;
    visit({.first_id = place.id,
           .last_id = place.id,
           .frame = run.frame,
           .first_ns = place.time_ns,
           .last_ns = place.time_ns});
  }
}

}  // namespace whyrss
