// When a process is walked: pure bookkeeping over polls, no clock and no /proc of its own.
#pragma once

#include <cstdint>
#include <optional>

#include "shim/trace/recording_format.h"

namespace whyrss {

// What the collector may take of a core, measured in its own CPU time: 3 % (`--overhead`) in the first minute and while
// memory moves, else a third of that; of each core that the job itself keeps busy. Half of it is for each of two
// token buckets: walks that must happen (start, fork, exit), which may overdraw theirs, and those that follow growth.
// So a storm of short programs cannot blind us for the one that grows. What one token bucket has no room for goes to
// the other. Walks on request and at the ends of phases are the program's own affair: it may take as many as it wants
// to pay for, and its forks and its growth are walked all the same. So are those near a memory limit (LimitPolicy),
// which may be the last.
class WalkBudget {
 public:
  static constexpr double kShare = 0.03;
  static constexpr double kRestPart = 1.0 / 3;  // of the share, once nothing moves
  static constexpr std::int64_t kFirstNs = 60'000'000'000;
  static constexpr std::int64_t kMovingNs = 1'000'000'000;  // after the last movement
  static constexpr std::int64_t kBurstNs = 100'000'000;     // in each token bucket at the start, and at most

  explicit WalkBudget(std::int64_t now_ns, double share = kShare)
      : begun_ns_(now_ns), filled_ns_(now_ns), share_(share) {}
  void spend(std::int64_t cpu_ns, bool must_happen) {
    (must_happen ? must_ns_ : growth_ns_) -= cpu_ns;
    spent_ns_ += cpu_ns;
  }
  void spend_beside(std::int64_t cpu_ns) { spent_ns_ += cpu_ns; }  // nothing of the token buckets
  // Of `total_cpu_ns` since the start, what no walk was charged with is for what had to happen.
  void settle(std::int64_t total_cpu_ns) {
    if (total_cpu_ns > spent_ns_) spend(total_cpu_ns - spent_ns_, true);
  }
  // At least once a tick: whether memory of any process moves, and how many cores the job keeps busy.
  void observe(std::int64_t now_ns, bool moves, double busy_cores);
  // True when half of what the walk will probably cost is there.
  [[nodiscard]] bool allows(std::int64_t now_ns, std::int64_t expected_cpu_ns);
  // For what must happen: false only when the bucket is overdrawn by a burst.
  [[nodiscard]] bool allows_overdraft(std::int64_t now_ns);

 private:
  void fill(std::int64_t now_ns);
  std::int64_t begun_ns_, filled_ns_;
  double share_;
  std::int64_t moved_ns_ = 0;
  double busy_cores_ = 1;
  std::int64_t spent_ns_ = 0;
  std::int64_t must_ns_ = kBurstNs, growth_ns_ = kBurstNs;
};

struct PollPoint {
  std::int64_t time_ns = 0;
  std::uint64_t rss_pages = 0;
  std::uint64_t faults = 0;     // minor + major
  std::int64_t live_bytes = 0;  // of the heap: what is freed and kept by the allocator moves neither
};

// How far apart they are, in pages: by RSS, faults or live bytes, whichever moved most.
std::uint64_t movement(const PollPoint& a, const PollPoint& b);

// When a process's allocator is asked for its own counters: RSS is at a peak, a tenth above that of the last time.
// The call may take 95 ms of the program's time, so the longer it runs the more rarely.
class PeakPolicy {
 public:
  static constexpr std::int64_t kShortestNs = 1'000'000'000, kLongestNs = 10'000'000'000;
  static constexpr std::int64_t kAgeParts = 8;

  [[nodiscard]] bool observe(const PollPoint& point);

 private:
  std::int64_t first_ns_ = 0, asked_ns_ = 0;
  std::uint64_t asked_rss_pages_ = 0;  // 0: nothing was observed yet
};

// When arrays and tensors are looked for after a walk (retaining_views.h), and huge pages are inspected: the process
// has grown since the last time, or 10 s have passed, and at most a hundredth of a core goes into it; at its end at
// once. Walks on request share a token bucket of as much, and may spend what is saved in it together; beyond that they
// get a tenth of a core where much has moved.
class ViewPolicy {
 public:
  static constexpr std::uint64_t kGrownPages = 4096;  // 16 MiB
  static constexpr std::uint64_t kMovedPart = 16;     // of what it had: much of a large process
  static constexpr std::int64_t kIntervalNs = 10'000'000'000;
  static constexpr std::int64_t kCostsBetween = 100;
  static constexpr std::int64_t kMovedCostsBetween = 10;
  static constexpr std::int64_t kBucketNs = 100'000'000;

  [[nodiscard]] bool is_due(trace::WalkTrigger trigger, std::int64_t now_ns, std::uint64_t rss_pages) const;
  void probed(std::int64_t now_ns, std::int64_t cpu_ns, std::uint64_t rss_pages);
  // It has grown much since the last time.
  [[nodiscard]] bool is_behind(std::uint64_t rss_pages) const { return rss_pages >= rss_pages_ + kGrownPages; }

 private:
  [[nodiscard]] std::int64_t token_ns(std::int64_t now_ns) const;
  std::int64_t probed_ns_ = 0, last_cpu_ns_ = 0;
  std::int64_t token_ns_ = kBucketNs;  // after the last walk
  std::uint64_t rss_pages_ = 0;        // at the last walk
};

// When PSS is read of a process that no walk covers any more: it has moved since the last reading, and rests. Else
// the last reading before a plateau would be one of the way up. The kernel holds the process's mmap lock meanwhile, for
// 7 ms per GiB.
class RollupPolicy {
 public:
  static constexpr std::int64_t kGapNs = 400'000'000;
  static constexpr std::int64_t kRestNs = 150'000'000;
  static constexpr std::int64_t kRestAloneNs = 1'000'000'000;
  static constexpr std::int64_t kCostsBetween = 50;  // 2 % of the time of the process at most
  static constexpr std::uint64_t kMovePages = 256;   // 1 MiB, or this part of what it had
  static constexpr std::uint64_t kMovePart = 50;
  static constexpr std::int64_t kPageCostNs = 27;  // until one was read

  // `point` is the newest poll. `alone`: no process is followed that might share pages with it, so that walks tell its
  // PSS as well, but for what it shares with processes that are not followed.
  [[nodiscard]] bool observe(const PollPoint& point, bool alone = false);
  // Others have moved, and may share pages with it.
  [[nodiscard]] bool is_old(std::int64_t now_ns) const;
  void read(const PollPoint& point, std::int64_t cpu_ns);
  [[nodiscard]] std::int64_t read_ns() const { return read_.time_ns; }  // 0: never
  [[nodiscard]] std::int64_t expected_cpu_ns(std::uint64_t rss_pages) const;

 private:
  PollPoint read_, resting_;
  bool has_read_ = false;
  std::int64_t last_cpu_ns_ = 0;
};

// One per process. The longer it has run, the less one more walk tells of memory that comes and goes at sizes that it
// had before: then walks lie a part of its age apart. What a report takes goes with the number of walks, and with that
// of events.
class WalkPolicy {
 public:
  static constexpr std::uint64_t kMovePages = 256;  // 1 MiB
  static constexpr std::int64_t kQuietNs = 200'000'000;
  static constexpr std::int64_t kIntervalNs = 10'000'000'000;
  // Idle programs touch a few pages now and then; that is not movement.
  static constexpr std::uint64_t kNoisePages = 8;
  // Of its age, where it is no larger than at some walk: at first, to kYoungGapNs.
  static constexpr double kYoungParts = 20;
  static constexpr std::int64_t kYoungGapNs = 250'000'000;
  // Of its age after the first minute: where it stays as large as at the last walk, and where it is no larger.
  static constexpr double kSameSizeParts = 100, kKnownSizeParts = 400;

  // Also while the token bucket is full, following the growth of one family takes at most this share of a core.
  explicit WalkPolicy(double share = WalkBudget::kShare)
      : costs_between_(1 / share), age_parts_(share / WalkBudget::kShare) {}

  // Why a walk is due at this poll, if it is.
  std::optional<trace::WalkTrigger> observe(const PollPoint& point);
  // `is_rest_pending`: it left something out that is worth another walk once the process rests.
  void walked(const PollPoint& point, std::int64_t cpu_ns, bool is_rest_pending = false);
  // It has called MADV_FREE, which moves no figure of a poll.
  void note_advice() { is_advised_ = true; }
  // Its family was walked with it, for this much together.
  void walked_together(std::int64_t cpu_ns) { last_walk_ns_ = cpu_ns; }
  // It runs another program now: what was walked says nothing about it.
  void forget();
  [[nodiscard]] std::int64_t expected_cpu_ns() const { return last_cpu_ns_; }
  // Since the last walk, by more than idle programs do. True without a walk.
  [[nodiscard]] bool has_moved(const PollPoint& point) const;

 private:
  static constexpr double kLeastGapPart = 0.5;  // of a gap; at most half of it more

  [[nodiscard]] bool is_known(const PollPoint& point) const;  // no larger than at some walk
  [[nodiscard]] bool is_due(const PollPoint& point) const;
  [[nodiscard]] std::int64_t gap_ns(const PollPoint& point, double parts) const;

  PollPoint last_walk_, last_change_, largest_;    // largest_: of each figure the most at a walk
  std::int64_t first_ns_ = 0, last_known_ns_ = 0;  // of the first walk, and of the last one at a known size
  std::uint64_t known_walks_ = 0;                  // those, so far
  double costs_between_, age_parts_;
  bool has_walk_ = false, rest_pending_ = false, is_advised_ = false;
  std::int64_t last_cpu_ns_ = 0, last_walk_ns_ = 0;
};

// When processes are walked because their memory cgroup, or one above it, will be full soon: the kernel kills then,
// and what it kills has no last walk. A tenth of a core goes into it at most.
class LimitPolicy {
 public:
  static constexpr std::int64_t kAheadNs = 1'000'000'000;
  static constexpr std::int64_t kRateNs = 100'000'000;  // a rate is that of one to two of these
  static constexpr std::int64_t kCostsBetween = 10;

  // What is left, at each poll. How much more memory will be used within kAheadNs, if it goes on as it does.
  std::int64_t observe(std::int64_t now_ns, std::int64_t left_bytes);

 private:
  struct Point {
    std::int64_t time_ns = 0, left_bytes = 0;
  };
  Point from_, newer_;  // from_: 0 before there were two
};

}  // namespace whyrss
