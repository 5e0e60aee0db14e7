// What the collector read of memory cgroups, into the model.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "model/account.h"

namespace whyrss {

// One frame of kind `cgroup`, written at time_s. Those of older versions hold fewer figures.
void read_cgroup_frame(const nlohmann::json& object, double time_s, std::optional<CgroupAccount>& group);

// Joins what two processes' files tell: the group with the smaller limit is the one to speak of. Readings of the same
// group are joined by time.
void merge_cgroup(CgroupAccount&& more, std::optional<CgroupAccount>& group);

// Sets peak_bytes to what was reached during the recording: a counter that did not rise in it tells of a time before.
void settle_peak(CgroupAccount& group);

}  // namespace whyrss
