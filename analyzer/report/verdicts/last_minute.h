// What a job held when it was killed, and what had grown in the minute before: for verdicts on its end.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "report/view/holders.h"
#include "report/view/limit_effect.h"
#include "report/view/view.h"

namespace whyrss {

struct LastMinute {
  double from_s = 0, to_s = 0;
  std::vector<Holder> held, grown;
  HeldTrend trend;                        // of the memory cgroup
  bool has_others = false;                // the group is not of this job alone, as far as is known
  const CgroupReading* before = nullptr;  // the group's last or fullest reading before the end, or that of the kernel
                                          // as it killed
  std::int64_t lazy_free_bytes = 0;       // of its anonymous memory: given up with MADV_FREE
};

// The minute before `end_s`, or all of a shorter run. `seen_s`: when the collector noticed the end; processes count up
// to then. `at_kill`: what the kernel's log says of the group at that moment; null: nothing.
LastMinute last_minute(const View& view, double end_s, double seen_s, const CgroupReading* at_kill = nullptr);

// Sentences, each with a blank before it; "" where nothing is known.
std::string held_sentence(const LastMinute& minute);
std::string grown_sentence(const LastMinute& minute);

// before, bytes_per_s, held_by, grown_in_last_minute
void add_evidence(const LastMinute& minute, nlohmann::ordered_json& evidence);

}  // namespace whyrss
