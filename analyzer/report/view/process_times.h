// Which processes are there at a time, without asking each: a job may have 10,000 short ones, and is evaluated at
// several moments of each of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/account.h"
#include "report/view/file_pss.h"

namespace whyrss {

class ProcessTimes {
 public:
  // The recording must outlive this, as it is.
  explicit ProcessTimes(const RecordingAccount& recording);

  [[nodiscard]] const RecordingAccount& recording() const { return *recording_; }

  // All that are there at a time, and some that come or go at about then; in the recording's order.
  [[nodiscard]] std::span<const ProcessAccount* const> near(double time_s) const;

  [[nodiscard]] const FilePssBound& files() const { return files_; }

  // Whether one of the others left at `from_s` or later, but before `to_s`.
  [[nodiscard]] bool others_left(const ProcessAccount& process, double from_s, double to_s) const;

  // By how much its relatives (parent, children, siblings) came to share less with their family between the two: each
  // page that one of them copies counts more in the PSS of those who still have it, and moves nothing else of them.
  [[nodiscard]] std::int64_t copied_by_relatives(const ProcessAccount& process, double from_s, double to_s) const;

  // `see(child)` for the children of a process that were born by `born_by_s` and first walked after `walked_after_s`.
  template <typename See>
  void children(int pid, double born_by_s, double walked_after_s, See see) const {
    const auto family = children_.find(pid);
    if (family == children_.end()) return;
    const std::vector<Child>& all = family->second;
    for (std::size_t i = born_until(all, born_by_s); i-- > 0 && all[i].latest_walk_s > walked_after_s;)
      if (all[i].process->accounts.front().time_s > walked_after_s) see(*all[i].process);
  }

 private:
  struct Child {
    const ProcessAccount* process;
    double latest_walk_s;  // the latest first walk of this one and those born before it
  };
  // Copies of one process, or of all children of one, by walks: their sum up to each.
  struct Copies {
    std::vector<std::pair<double, std::int64_t>> sums;
    void add(const Copies& more);
    void sum_up();
    [[nodiscard]] std::int64_t between(double from_s, double to_s) const;
  };
  static Copies copies_of(const ProcessAccount& process);
  static std::int64_t copied_by(const std::unordered_map<int, Copies>& all, int pid, double from_s, double to_s);
  void collect_copies();
  [[nodiscard]] std::size_t stretch_of(double time_s) const;
  static std::size_t born_until(const std::vector<Child>& all, double time_s);

  const RecordingAccount* recording_;
  FilePssBound files_;
  double stretch_s_ = 1;
  std::vector<std::vector<const ProcessAccount*>> stretches_;      // equal parts of the time; the last one is open
  std::vector<std::pair<double, const ProcessAccount*>> leaving_;  // by time
  std::unordered_map<int, std::vector<Child>> children_;           // those that were walked, by birth
  std::unordered_map<int, Copies> copies_;                         // by pid
  std::unordered_map<int, Copies> copies_of_children_;             // by their parent's
};

// Until when a process is there; nothing: to the end. Its end is noticed a little late: one that had begun to leave and
// that no poll or walk found after that is gone.
std::optional<double> there_until(const ProcessAccount& process);

// Whether it was there at a time.
bool is_there(const ProcessAccount& process, double time_s);

}  // namespace whyrss
