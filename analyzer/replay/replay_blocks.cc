// Replay's third part: the stream of exact mode's small blocks beside that of all other records.
#include <fmt/format.h>

#include "replay/replay_process.h"

namespace whyrss {
namespace {

// Before the first attach record there is no image whose blocks they could be.
class ImageSink final : public BlockMerge::Sink {
 public:
  ImageSink(SmallBlocks& small, std::map<StackId, StackCache>& stacks, ThreadStarts& threads, AddressSpace& space,
            ImageTables* image)
      : small_(&small), stacks_(&stacks), threads_(&threads), space_(&space), image_(image) {}
  void apply(std::span<const BlockEvent> events, std::uint32_t tid) override {
    if (image_ == nullptr) return;
    if (of_thread_ == nullptr || tid != tid_) {  // no thread starts while blocks are played
      const StackId starter = threads_->starter_of(tid_ = tid);
      of_thread_ = &stacks_->try_emplace(starter, *image_, *threads_, starter).first->second;
    }
    small_->apply(events, tid, *of_thread_, *space_);
  }

 private:
  SmallBlocks* small_;
  std::map<StackId, StackCache>* stacks_;
  ThreadStarts* threads_;
  AddressSpace* space_;
  ImageTables* image_;
  std::uint32_t tid_ = 0;
  StackCache* of_thread_ = nullptr;
};

}  // namespace

// A child that soon runs another program, as most do, needs no copy of its parent's.
bool Replay::Process::shows_inherited_blocks() const {
  if (records.count_of(trace::RecordKind::attach) < 2 && !records.has(trace::RecordKind::fork)) return !walks.empty();
  std::uint64_t until_ns = std::numeric_limits<std::uint64_t>::max();
  std::size_t attached_count = 0;
  for (const EventRecord& record : records) {
    if (record.kind == trace::RecordKind::attach && ++attached_count == 2) until_ns = record.time_ns;
    if (attached_count == 2) break;
    if (record.kind == trace::RecordKind::fork) return true;
  }
  return !walks.empty() && walks.front().time_ns < until_ns;
}

void Replay::play_blocks(Process& process, std::uint64_t limit_ticks) {
  ImageSink sink(process.small, process.stacks, process.threads, process.space, process.image);
  process.merge->advance(limit_ticks, process.next_record, sink);
}

// Its last records are behind it: what is not needed any more is given back.
void Replay::finish(Process& process) {
  if (process.merge) {
    play_blocks(process, std::numeric_limits<std::uint64_t>::max());
    const std::uint64_t unreadable = process.merge->unreadable_records();
    process.input->stream.count_unreadable(unreadable);
    if (unreadable > 0)
      process.account->notes.push_back(fmt::format("{} small blocks' events cannot be read and are lost", unreadable));
    process.merge.reset();
  }
  process.small.begin(0);
  process.records.release();
  process.stacks.clear();
  process.threads.clear();
  process.walked.reset();
  process.early.reset();
  process.ahead.reset();
  process.liveness.reset();
  process.liveness_reader = {};
  process.payload = {};
  for (const auto& image : process.images) image->release();
}

}  // namespace whyrss
