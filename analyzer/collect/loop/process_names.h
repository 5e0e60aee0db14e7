// Which process a key of the pool means. Processes in a nested pid namespace know themselves by another
// pid than we do; their start time is the same.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "collect/loop/process_follow.h"

namespace whyrss {

class ProcessNames {
 public:
  // `is_traced` tells of a pid here whether that process maps the pool.
  explicit ProcessNames(std::function<bool(pid_t)> is_traced = {}) : is_traced_(std::move(is_traced)) {}

  // Its pid here; 0: it has ended; nothing: not known yet, ask again soon (looking through all processes
  // is done at most ten times a second, unless the caller must know now). One search answers for all that have ended.
  std::optional<pid_t> pid_of(ProcessKey key, std::int64_t now_ns, bool must_know = false);
  // The key under our own pid; the same key for all but nested processes.
  [[nodiscard]] ProcessKey own_key(ProcessKey key) const;
  // All names of a process.
  [[nodiscard]] std::set<ProcessKey> names_of(ProcessKey own) const;

 private:
  std::map<ProcessKey, ProcessKey> nested_;  // as the pool names it -> as we do
  std::set<ProcessKey> ended_;
  void search(std::int64_t now_ns);
  [[nodiscard]] std::optional<ProcessKey> youngest_nested(std::uint32_t own_pid) const;
  [[nodiscard]] std::optional<ProcessKey> traced_here(pid_t pid) const;

  std::function<bool(pid_t)> is_traced_;
  std::multimap<std::uint64_t, pid_t> living_;  // start -> pid here, of the last search
  std::int64_t searched_ns_ = 0;
  std::uint64_t searched_ticks_ = 0;  // when that was, as processes tell their start
};

}  // namespace whyrss
