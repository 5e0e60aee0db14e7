// One followed process: its two files in the recording and everything that is read about it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collect/cgroup/cgroup.h"
#include "collect/loop/process_file.h"
#include "collect/loop/walk_policy.h"
#include "collect/loop/write_faults.h"
#include "collect/loop/write_tracker.h"
#include "collect/read/file_sizes.h"
#include "collect/read/lazy_free.h"
#include "collect/read/liveness_frame.h"
#include "collect/read/package_folders.h"
#include "collect/read/page_walk.h"
#include "collect/read/pymalloc_pools.h"
#include "collect/read/target_memory.h"
#include "procfs/process_stat.h"
#include "recording/manifest.h"
#include "shim/trace/pool.h"
#include "support/file.h"
#include "support/kernel_log.h"

namespace whyrss {

// A process as the pool names it. `pid` is as the process itself sees it.
struct ProcessKey {
  std::uint32_t pid = 0;
  std::uint64_t start_ticks = 0;
  friend auto operator<=>(const ProcessKey&, const ProcessKey&) = default;
};

// What all followed processes share.
struct FollowContext {
  std::string directory;  // of the recording
  std::string host;
  std::string memory_group;  // directory of the cgroup that record made for the target; "": none
  trace::SessionId session;
  WalkMethods methods;
  BackingResolver* resolver = nullptr;
  double share = WalkBudget::kShare;  // of a core, for walks
  std::int64_t exact_cpu_ns = 0;      // spent so far on events of exact mode, also in between: no walk's cost
  WriteFaults* faults = nullptr;
  std::shared_ptr<PackageFolders> package_folders = std::make_shared<PackageFolders>();
};

class ProcessFollow {
 public:
  ProcessFollow(const FollowContext& context, ProcessKey key, pid_t pid);

  [[nodiscard]] ProcessKey key() const { return key_; }
  [[nodiscard]] pid_t pid() const { return pid_; }  // 0: it had ended before it was first seen
  [[nodiscard]] int pidfd() const { return pidfd_.get(); }
  [[nodiscard]] std::int64_t born_ns() const { return born_ns_; }
  [[nodiscard]] std::uint64_t recorded_bytes() const { return events_.size_bytes() + pages_.size_bytes(); }
  [[nodiscard]] std::uint64_t rss_pages() const { return last_poll_.rss_pages; }
  // 0: one more walk would show more, though RSS has not moved.
  [[nodiscard]] std::uint64_t walked_rss_pages() const { return walked_rss_pages_; }
  [[nodiscard]] std::uint64_t walked_minor_faults() const { return walked_minor_faults_; }
  [[nodiscard]] bool has_walk() const { return has_walk_; }
  // At its last walk, of those that others may map since a fork.
  [[nodiscard]] std::uint64_t shared_pages() const { return shared_pages_; }
  // At its last walk, in files that are mapped so that what is written reaches them.
  [[nodiscard]] std::uint64_t written_file_pages() const { return written_file_pages_; }
  [[nodiscard]] std::uint64_t start_code() const { return image_.start_code; }
  [[nodiscard]] std::uint64_t start_stack() const { return image_.start_stack; }
  [[nodiscard]] std::int64_t thread_count() const { return thread_count_; }
  [[nodiscard]] WalkPolicy& policy() { return policy_; }
  [[nodiscard]] bool has_ended() const;
  // Notes when its memory is first seen to be gone, which write_ended() tells as its end: that it has ended is noticed
  // later. What is read of its relatives after that must not count it.
  void notice_end();

  // Reads statm and stat; false when the process is gone. `exec_seen` is set when it runs another image
  // than at the last poll.
  bool poll(bool& exec_seen);
  [[nodiscard]] PollPoint poll_point() const { return last_poll_; }
  // Between the last two polls, in pages.
  [[nodiscard]] std::uint64_t polled_movement() const { return polled_movement_; }
  // User and system time of all its threads, at the last poll.
  [[nodiscard]] std::uint64_t cpu_ticks() const { return cpu_ticks_; }
  // From now on its writes can be tracked, until it runs another program.
  void set_write_tracker(std::optional<WriteTracker> tracker) { write_tracker_ = std::move(tracker); }
  [[nodiscard]] bool has_write_tracker() const { return write_tracker_.has_value(); }
  // It has called MADV_FREE, or inherited what was given up so: walks ask for what is left of it, until nothing is.
  void expect_lazy_free() { may_have_lazy_free_ = true; }
  [[nodiscard]] bool may_have_lazy_free() const { return may_have_lazy_free_; }
  // It has forked: what was its own is others' too.
  void forget_what_is_own() { known_ = {}; }

  // Each returns the CPU time that it took. What cannot be read is left out.
  // `liveness`: where the process keeps its liveness table, 0: it has none.
  // `track`: what it shares with relatives is protected meanwhile, if its writes can be tracked.
  // `forks`: as they were when `relatives` was found out.
  std::int64_t walk(trace::WalkTrigger trigger, std::uint64_t liveness, Relatives relatives = Relatives::possible,
                    std::optional<WriteTracker::Huge> track = std::nullopt, ForkCount forks = {});
  std::int64_t write_smaps(trace::WalkTrigger moment);
  std::int64_t write_rollup(trace::WalkTrigger moment);
  void write_status(trace::WalkTrigger moment);
  // Its memory cgroup, from now on or, when it has ended, for the last time.
  void write_cgroup(bool after_end);
  // The same as often as something moves in it, at most at every poll. Returns what it has of shared memory; 0: it was
  // handed to another process, or that is not known.
  std::int64_t poll_cgroup(std::int64_t now_ns);
  [[nodiscard]] const std::optional<CgroupMemory>& cgroup() const { return cgroup_; }
  // So little is left to a memory limit that it will be met soon, if it goes on like this.
  [[nodiscard]] bool is_near_limit(std::int64_t now_ns);
  // Goes on reporting the group of a process that has ended.
  void take_cgroup(const CgroupMemory& group) { cgroup_ = group; }
  // The group that it is in, as /proc/PID/cgroup names it.
  [[nodiscard]] std::string cgroup_name() const;
  [[nodiscard]] bool wants_rollup(std::int64_t now_ns) const;
  [[nodiscard]] RollupPolicy& rollups() { return rollups_; }
  // `announced`: the library in the program that it runs has said that it is there. In the middle of an exec it is
  // written with the next poll, or at the end: its command is not there yet.
  void write_process(bool announced);
  void write_counters(const trace::ProcessSlot& slot);
  // The payload of an `unmapped` frame.
  void write_unmapped(const nlohmann::json& payload);
  // By which signal it ended; "" where it was none or is not known.
  [[nodiscard]] std::string end_signal() const;
  // `kernel_lines`: the kernel's words on its end.
  void write_ended(const std::string& how, std::optional<int> status, const std::string& signal,
                   const std::vector<KernelLine>& kernel_lines);
  void flush_polls();
  // What its slot says: counts from the next poll or walk on, and is written where it has changed.
  void note_live_bytes(std::int64_t live_bytes);
  // ru_maxrss of one that a signal ended, in KiB: of it, or of a child that it waited for.
  void note_max_rss(std::int64_t kib) { max_rss_kib_ = kib; }

  [[nodiscard]] bool has_smaps() const { return smaps_rss_pages_ > 0; }
  // True for the moment of a peak: RSS is a tenth above the last smaps, and that, or the first observation of the
  // process, is 30 s ago.
  [[nodiscard]] bool wants_peak_smaps(std::int64_t now_ns) const;

  // Nothing will be written any more: its files, as they are to be found.
  ClosedProcess close();

  Status append_segments(std::int64_t now_ns, std::span<const std::byte> payload);
  Status append_blocks(std::int64_t now_ns, std::span<const std::byte> payload);
  // Of which nothing was stored, for that reason.
  void lose_events(std::uint64_t count, const Error& why) { context_->faults->lost_events(events_.path(), count, why); }

 private:
  // As the last poll found it: another program has another one.
  struct Image {
    std::uint64_t start_code = 0, start_stack = 0;
    bool operator==(const Image&) const = default;
  };

  [[nodiscard]] std::string file(const char* name) const;
  [[nodiscard]] FileIdentity identity(trace::FileKind kind) const;
  bool append(trace::FrameKind kind, std::span<const std::byte> payload);
  void write_tracked(WriteTracker::Pass& pass, const PageWalk& walk);
  void write_liveness(const PageWalk& walk, std::uint64_t table, ForkCount forks);
  void write_huge_pages(const PageWalk& walk, const TargetMemory& memory);
  void write_lazy_free(const LazyFreeReading& reading);
  [[nodiscard]] std::optional<MemoryPages> read_memory() const;
  struct Reading {
    ProcessStat stat;
    MemoryPages memory;
    std::int64_t time_ns;
  };
  [[nodiscard]] std::optional<Reading> read_now() const;
  [[nodiscard]] bool has_memory() const;
  void write_views(const PageWalk& walk, const TargetMemory& memory, const Liveness& liveness);
  void read_high_water();
  void count_handles(std::int64_t now_ns);
  void write_handles();
  void append_json(trace::FrameKind kind, const std::string& text);
  std::int64_t write_text(trace::FrameKind kind, const char* file, trace::WalkTrigger moment);
  [[nodiscard]] std::string proc(const char* file) const;
  [[nodiscard]] std::string directory_name() const;
  [[nodiscard]] PollPoint point_at(std::int64_t now_ns) const;

  const FollowContext* context_;
  ProcessKey key_;
  pid_t pid_;
  std::int64_t born_ns_;
  Fd pidfd_;
  ProcessFile events_, pages_;
  std::optional<WriteTracker> write_tracker_;
  WalkPolicy policy_;
  RollupPolicy rollups_;
  PollPoint last_poll_;
  std::uint64_t polled_movement_ = 0, cpu_ticks_ = 0;
  std::int64_t high_water_kilos_ = 0;  // VmHWM, as read last after a peak
  std::int64_t live_bytes_ = 0, max_rss_kib_ = 0;
  KnownMemory known_;
  MappedFileSizes file_sizes_;
  PoolReader pools_;
  LivenessFrames liveness_frames_;
  ViewPolicy view_policy_, huge_policy_;
  std::int64_t mapping_count_ = 0;                // at the last walk
  std::optional<std::int64_t> descriptor_count_;  // when they could be counted last
  std::int64_t most_descriptors_ = 0, most_descriptors_ns_ = 0;
  std::int64_t counted_ns_ = 0, next_count_ns_ = 0;
  bool has_handles_ = false;     // were written once
  std::int64_t handles_ns_ = 0;  // as they were then
  std::int64_t known_ns_ = 0;    // when all of it was looked up
  std::vector<trace::Poll> polls_;
  std::vector<trace::LivePoll> live_polls_;
  std::int64_t thread_count_ = 1;
  std::string comm_;  // at the last poll, like the next
  std::int64_t parent_pid_ = 0;
  Image image_;
  std::optional<bool> deferred_process_;  // write_process() with this `announced` is due
  std::int64_t gone_ns_ = 0;              // 0: it is there, as far as is known
  std::optional<CgroupMemory> cgroup_;
  CgroupFigures cgroup_figures_;  // as written last
  std::int64_t cgroup_ns_ = 0;    // when they were read
  LimitPolicy limit_;
  std::uint64_t walked_rss_pages_ = 0, walked_minor_faults_ = 0, written_file_pages_ = 0, shared_pages_ = 0;
  bool has_walk_ = false, may_have_lazy_free_ = false;
  std::uint64_t smaps_rss_pages_ = 0;
  std::int64_t smaps_ns_ = 0, totals_ns_ = 0;
  std::int64_t locked_kilos_ = 0, smaps_locked_kilos_ = 0;  // by mlock, at the last rollup and as smaps reported
};

}  // namespace whyrss
