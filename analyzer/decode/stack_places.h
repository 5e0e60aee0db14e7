// In which frames of a recording the stack records of one program image are, so that they need not be in memory: a job
// in exact mode may describe millions of stacks, of several hundred bytes each.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace whyrss {

// Stack records of one frame with ascending ids; not every id in between needs to be there.
struct StackRun {
  std::uint32_t first_id = 0, last_id = 0;
  std::uint32_t frame = 0;                  // of the process's events, or kLooseStack
  std::uint64_t first_ns = 0, last_ns = 0;  // the earliest and the latest of them
};
// A record that no frame holds: a pool that was left behind did.
inline constexpr std::uint32_t kLooseStack = 0xffffffff;

// Appends a record to `runs`, where its frame's records are added one after the other.
inline void add_stack(std::vector<StackRun>& runs, std::uint32_t id, std::uint32_t frame, std::uint64_t time_ns) {
  constexpr std::uint32_t kMostBetween = 4096;  // other threads took these ids
  if (!runs.empty() && runs.back().frame == frame && id > runs.back().last_id &&
      id - runs.back().last_id <= kMostBetween) {
    StackRun& run = runs.back();
    run.last_id = id;
    run.first_ns = std::min(run.first_ns, time_ns);
    run.last_ns = std::max(run.last_ns, time_ns);
  } else {
    runs.push_back({.first_id = id, .last_id = id, .frame = frame, .first_ns = time_ns, .last_ns = time_ns});
  }
}

class StackPlaces {
 public:
  void add(const StackRun& run) { runs_.push_back(run); }

  // Call it when all are added.
  void sort() {
    std::ranges::stable_sort(runs_, {}, &StackRun::first_id);
    runs_.shrink_to_fit();
    last_ids_.resize(runs_.size());
    std::uint32_t last_id = 0;
    for (std::size_t i = 0; i < runs_.size(); ++i) last_ids_[i] = last_id = std::max(last_id, runs_[i].last_id);
  }

  // Calls visit(frame) for frames that may hold `id`, until it returns true. False: none did.
  template <typename Visit>
  bool visit_frames(std::uint32_t id, Visit visit) const {
    constexpr std::size_t kMostTried = 64;  // more overlap only in a damaged recording
    auto after = static_cast<std::size_t>(std::ranges::upper_bound(runs_, id, {}, &StackRun::first_id) - runs_.begin());
    for (std::size_t tried = 0; after > 0 && last_ids_[after - 1] >= id && tried < kMostTried; --after, ++tried) {
      const StackRun& run = runs_[after - 1];
      if (run.last_id >= id && visit(run.frame)) return true;
    }
    return false;
  }

 private:
  std::vector<StackRun> runs_;           // by first id
  std::vector<std::uint32_t> last_ids_;  // the highest of the runs up to there
};

}  // namespace whyrss
