#include "job/group_key.h"

namespace whyrss {

ProcessesByPid by_pid_of(const ReducedRecording& recording) {
  ProcessesByPid by_pid;
  for (const ReducedProcess& process : recording.processes) by_pid.emplace(process.pid, &process);
  return by_pid;
}

bool is_worker(const ReducedProcess& process, const ProcessesByPid& by_pid) {
  const auto parent = by_pid.find(process.parent);
  return parent != by_pid.end() && parent->second != &process && parent->second->name == process.name &&
         parent->second->rank == process.rank;
}

}  // namespace whyrss
