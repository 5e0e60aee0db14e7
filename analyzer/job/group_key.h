// Which processes of a job are alike: those of one name; those that one of the same name and rank has started, workers
// of a pool or a data loader, are a group of their own.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "job/job_view.h"

namespace whyrss {

using GroupKey = std::pair<std::string, bool>;  // name, whether they are workers
using ProcessesByPid = std::map<std::int64_t, const ReducedProcess*>;

inline GroupKey key_of(const JobGroup& group) { return {group.name, group.is_worker}; }
ProcessesByPid by_pid_of(const ReducedRecording& recording);
bool is_worker(const ReducedProcess& process, const ProcessesByPid& by_pid);

}  // namespace whyrss
