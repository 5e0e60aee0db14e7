#include "decode/block_merge.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "recording/lease_reader.h"

namespace whyrss {
namespace {

constexpr std::uint32_t kNoRecord = std::numeric_limits<std::uint32_t>::max();

}  // namespace

BlockMerge::BlockMerge(const FrameFile& file, const EventStream& stream, std::span<const EventRecord> records)
    : file_(&file), stream_(&stream), frame_runs_(file.frames.size()) {
  const auto& runs = stream.runs().all();
  std::unordered_map<std::uint32_t, std::uint32_t> thread_of;
  for (std::uint32_t i = 0; i < runs.size(); ++i) {
    const auto [found, added] = thread_of.try_emplace(runs[i].tid, static_cast<std::uint32_t>(threads_.size()));
    if (added) threads_.emplace_back().tid = runs[i].tid;
    threads_[found->second].runs.push_back(i);
    ++frame_runs_.at(runs[i].frame);
  }
  for (std::uint32_t i = 0; i < records.size(); ++i)
    if (!is_description(records[i].kind)) placed_.push_back({records[i].lease, records[i].offset, i});
  std::ranges::sort(placed_, {}, [](const PlacedRecord& record) { return std::pair(record.lease, record.offset); });
  for (std::uint32_t i = 0; i < threads_.size(); ++i) push(i);
}

const StoredRun& BlockMerge::run_of(const Thread& thread) const {
  return stream_->runs().all()[thread.runs[thread.next_run]];
}

void BlockMerge::push(std::uint32_t number) {
  const Thread& thread = threads_[number];
  if (thread.next_run == thread.runs.size()) return;
  const std::uint64_t ticks =
      thread.batch != nullptr ? thread.batch->events[thread.batch->next].ticks : run_of(thread).first_ticks;
  heads_.push_back({ticks, number});
  std::ranges::push_heap(heads_, std::greater<>());
}

void BlockMerge::pop() {
  std::ranges::pop_heap(heads_, std::greater<>());
  heads_.pop_back();
}

// The last one whose place matters and that stands before the run in its lease.
std::uint32_t BlockMerge::record_before(const StoredRun& run) const {
  const auto next =
      std::ranges::upper_bound(placed_, std::pair(run.lease, run.offset), {},
                               [](const PlacedRecord& record) { return std::pair(record.lease, record.offset); });
  if (next == placed_.begin() || std::prev(next)->lease != run.lease) return kNoRecord;
  return std::prev(next)->number;
}

std::uint64_t BlockMerge::limit_for(const EventRecord& record, std::uint64_t ticks) const {
  const auto [from, until] = stream_->runs().ticks_around(record.lease, record.offset);
  return std::max(from, std::min(ticks, until));
}

BlockMerge::OpenFrame& BlockMerge::frame(std::uint32_t number) {
  const auto [found, added] = open_frames_.try_emplace(number);
  OpenFrame& open = found->second;
  if (!added) return open;
  const RawFrame& stored = file_->frames[number];
  if (on_frame_) on_frame_(stored.stored_bytes);
  if (stored.stored_at != 0 && !fd_) fd_ = file_->reopen();
  auto payload = load_payload(stored, fd_.get(), kPayloadSlack);
  if (!payload) return open;
  open.payload = std::move(*payload);
  open.readable = read_runs(open.payload, open.payload.size() - kPayloadSlack, open.runs);
  return open;
}

void BlockMerge::release_frame(std::uint32_t number) {
  if (--frame_runs_[number] == 0) open_frames_.erase(number);
}

// False when there is nothing to read in it.
bool BlockMerge::open_run(Thread& thread) {
  const StoredRun& run = run_of(thread);
  OpenFrame& open = frame(run.frame);
  if (spare_.empty()) spare_.push_back(std::make_unique<Batch>());
  thread.batch = std::move(spare_.back());
  spare_.pop_back();
  const bool readable = open.readable && run.index < open.runs.runs.size() &&
                        thread.batch->decoder.begin(std::span(open.payload).first(open.payload.size() - kPayloadSlack),
                                                    open.runs, run.index, run.from_offset);
  if (!readable) unreadable_records_ += run.event_count;
  return readable && refill(thread);
}

bool BlockMerge::refill(Thread& thread) {
  Batch& batch = *thread.batch;
  batch.next = 0;
  batch.count = batch.decoder.read(std::span(batch.events).first(kBatch));
  event_count_ += batch.count;
  return batch.count > 0;
}

void BlockMerge::close_run(Thread& thread) {
  const std::uint32_t frame = run_of(thread).frame;
  if (thread.batch != nullptr) spare_.push_back(std::move(thread.batch));
  thread.batch.reset();
  ++thread.next_run;
  release_frame(frame);
}

// At least one event; as many as there are in this run and not after `bound`.
void BlockMerge::hand_over(Thread& thread, std::uint64_t bound, Sink& sink) {
  Batch& batch = *thread.batch;
  while (true) {
    std::size_t end = batch.next + 1;
    if (batch.events[batch.count - 1].ticks <= bound)
      end = batch.count;
    else
      while (end < batch.count && batch.events[end].ticks <= bound) ++end;
    sink.apply(std::span(batch.events).subspan(batch.next, end - batch.next), thread.tid);
    batch.next = end;
    if (end < batch.count) return;
    if (!refill(thread)) return close_run(thread);
    if (batch.events[0].ticks > bound) return;
  }
}

void BlockMerge::advance(std::uint64_t limit_ticks, std::size_t records_done, Sink& sink) {
  std::erase_if(waiting_, [&](const Waiting& waiting) {
    if (waiting.record >= records_done) return false;
    push(waiting.thread);
    return true;
  });
  while (!heads_.empty() && heads_.front().ticks <= limit_ticks) {
    const std::uint32_t number = heads_.front().thread;
    Thread& thread = threads_[number];
    pop();
    if (thread.batch == nullptr) {
      const std::uint32_t before = record_before(run_of(thread));
      if (before != kNoRecord && before >= records_done) {
        waiting_.push_back({before, number});
        continue;
      }
      if (!open_run(thread)) close_run(thread);
    } else {
      const std::uint64_t next_ticks = heads_.empty() ? limit_ticks : std::min(limit_ticks, heads_.front().ticks);
      hand_over(thread, next_ticks, sink);
    }
    push(number);
  }
}

void BlockMerge::skip_before_lease(std::uint64_t lease) {
  for (Thread& thread : threads_)
    while (thread.next_run < thread.runs.size() && run_of(thread).lease < lease) close_run(thread);
  heads_.clear();
  waiting_.clear();
  for (std::uint32_t i = 0; i < threads_.size(); ++i) push(i);
}

}  // namespace whyrss
