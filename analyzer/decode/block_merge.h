// The compact records of one process in the order in which they were written, all threads together, as a stream: at any
// time only the frames are in memory that some thread stands in.
//
// Threads are merged by ticks; a thread's own records are in program order. What a record in the other stream
// (EventStream::records()) stands before and after in its thread is kept too: the caller says how many of those
// records are done, and runs that stand behind a later one wait for it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "decode/event_stream.h"
#include "recording/frame_file.h"
#include "recording/run_decoder.h"
#include "support/file.h"

namespace whyrss {

class BlockMerge {
 public:
  // Takes consecutive events of one thread. Behind the last one lie kLookahead more that may be read: what will
  // probably come next in this thread, or nonsense.
  class Sink {
   public:
    Sink() = default;
    Sink(const Sink&) = delete;
    Sink& operator=(const Sink&) = delete;
    virtual ~Sink() = default;
    virtual void apply(std::span<const BlockEvent> events, std::uint32_t tid) = 0;
  };
  static constexpr std::size_t kLookahead = 16;

  // All outlive this; `records` are those of the same stream.
  BlockMerge(const FrameFile& file, const EventStream& stream, std::span<const EventRecord> records);

  // Hands all events up to `limit_ticks` to the sink, but for those that stand behind record number `records_done` or
  // a later one in their thread.
  void advance(std::uint64_t limit_ticks, std::size_t records_done, Sink& sink);

  // `ticks`, moved to where this record stands among the events of its thread.
  [[nodiscard]] std::uint64_t limit_for(const EventRecord& record, std::uint64_t ticks) const;

  // `tell` is called for each frame that is read, with its size in the file.
  void on_frame(std::function<void(std::uint64_t stored_bytes)> report) { on_frame_ = std::move(report); }

  // Leaves out what was written into earlier leases: by threads that an exec ended.
  void skip_before_lease(std::uint64_t lease);

  // Events that could not be read, at most.
  [[nodiscard]] std::uint64_t unreadable_records() const { return unreadable_records_; }
  [[nodiscard]] std::uint64_t event_count() const { return event_count_; }

 private:
  static constexpr std::size_t kBatch = 256;
  static constexpr std::uint32_t kAnyTime = 0;

  struct Batch {
    RunDecoder decoder;
    std::array<BlockEvent, kBatch + kLookahead> events{};
    std::size_t next = 0, count = 0;
  };
  struct Thread {
    std::uint32_t tid = 0;
    std::vector<std::uint32_t> runs;  // of BlockRuns::all(), in order
    std::size_t next_run = 0;         // the open one, when there is a batch
    std::unique_ptr<Batch> batch;
  };
  struct Head {
    std::uint64_t ticks;
    std::uint32_t thread;
    friend bool operator>(const Head& a, const Head& b) {
      return a.ticks != b.ticks ? a.ticks > b.ticks : a.thread > b.thread;
    }
  };
  struct OpenFrame {
    std::vector<std::byte> payload;
    PayloadRuns runs;
    bool readable = false;
  };
  struct Waiting {
    std::uint32_t record, thread;
  };

  [[nodiscard]] const StoredRun& run_of(const Thread& thread) const;
  void push(std::uint32_t thread);
  void pop();
  [[nodiscard]] std::uint32_t record_before(const StoredRun& run) const;
  bool open_run(Thread& thread);
  void close_run(Thread& thread);
  bool refill(Thread& thread);
  OpenFrame& frame(std::uint32_t number);
  void release_frame(std::uint32_t number);
  void hand_over(Thread& thread, std::uint64_t bound, Sink& sink);

  const FrameFile* file_;
  const EventStream* stream_;
  Fd fd_;
  std::vector<Thread> threads_;
  std::vector<Head> heads_;  // a heap, the earliest first
  std::vector<Waiting> waiting_;
  // Records whose place matters: (lease, offset, number), sorted.
  struct PlacedRecord {
    std::uint64_t lease;
    std::uint32_t offset, number;
  };
  std::vector<PlacedRecord> placed_;
  std::map<std::uint32_t, OpenFrame> open_frames_;
  std::vector<std::uint32_t> frame_runs_;  // of each frame, how many are still to come
  std::vector<std::unique_ptr<Batch>> spare_;
  std::uint64_t unreadable_records_ = 0, event_count_ = 0;
  std::function<void(std::uint64_t)> on_frame_;
};

}  // namespace whyrss
