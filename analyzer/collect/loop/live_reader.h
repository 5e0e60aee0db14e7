// Reads what live metrics say of single processes, at a cost that is bounded: metrics/live_figures.h.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "collect/loop/process_follow.h"
#include "metrics/live_figures.h"

namespace whyrss {

struct LiveProcess {
  ProcessKey key;
  pid_t pid = 0;
  double born_s = 0;
  std::uint64_t rss_pages = 0;                   // as polled last
  std::optional<std::int64_t> heap_net_bytes{};  // by its slot
};

class LiveReader {
 public:
  // `between`: called after each reading that may take long. Those that have ended are left out.
  std::vector<ProcessFigures> read(const std::vector<LiveProcess>& processes, const std::function<void()>& between);

 private:
  // PSS and USS: the kernel walks all pages for them.
  struct Totals {
    std::int64_t read_ns = 0;
    std::int64_t pss_bytes = 0, uss_bytes = 0;
  };
  void read_totals(const std::vector<LiveProcess>& processes, const std::function<void()>& between);
  [[nodiscard]] std::int64_t read_ns(const LiveProcess& process) const;

  std::map<ProcessKey, Totals> totals_;
  std::int64_t next_totals_ns_ = 0;
};

}  // namespace whyrss
