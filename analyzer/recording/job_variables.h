// Variables by which launchers tell a process which part of a job it is, and whether LD_PRELOAD has our library.
// Nothing else of an environment is recorded: it may hold secrets.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace whyrss {

inline constexpr std::array<std::string_view, 26> kJobVariables{"SLURM_JOB_ID",
                                                                "SLURM_STEP_ID",
                                                                "SLURM_PROCID",
                                                                "SLURM_NODEID",
                                                                "SLURM_LOCALID",
                                                                "SLURM_NTASKS",
                                                                "SLURM_JOB_NODELIST",
                                                                "SLURM_JOB_NUM_NODES",
                                                                "SLURM_RESTART_COUNT",
                                                                "SLURMD_NODENAME",
                                                                "PBS_JOBID",
                                                                "LSB_JOBID",
                                                                "JOB_ID",
                                                                "TORCHELASTIC_RUN_ID",
                                                                "RANK",
                                                                "LOCAL_RANK",
                                                                "WORLD_SIZE",
                                                                "GROUP_RANK",
                                                                "OMPI_COMM_WORLD_RANK",
                                                                "OMPI_COMM_WORLD_LOCAL_RANK",
                                                                "OMPI_COMM_WORLD_SIZE",
                                                                "PMIX_RANK",
                                                                "PMI_RANK",
                                                                "PMI_SIZE",
                                                                "NODE_NAME",
                                                                "HOSTNAME"};

// A list of nodes may be long; what is longer than this is left out.
inline constexpr std::size_t kMostVariableBytes = 4096;

// Of an environment as /proc has it, entries with a NUL behind each.
template <typename See>
void see_variables(std::string_view environment, See see) {
  while (!environment.empty()) {
    const std::size_t end = std::min(environment.find('\0'), environment.size());
    const std::string_view entry = environment.substr(0, end);
    environment.remove_prefix(std::min(end + 1, environment.size()));
    const std::size_t equals = entry.find('=');
    if (equals != std::string_view::npos) see(entry.substr(0, equals), entry.substr(equals + 1));
  }
}

inline std::map<std::string, std::string> job_variables(std::string_view environment) {
  std::map<std::string, std::string> found;
  see_variables(environment, [&](std::string_view name, std::string_view value) {
    if (name.size() + 1 + value.size() > kMostVariableBytes) return;
    // The first one counts, as for getenv.
    if (std::ranges::find(kJobVariables, name) != kJobVariables.end())
      found.emplace(std::string(name), std::string(value));
  });
  return found;
}

// The first one of that name, as for getenv; "" where there is none.
inline std::string variable_of(std::string_view environment, std::string_view wanted) {
  std::optional<std::string_view> found;
  see_variables(environment, [&](std::string_view name, std::string_view value) {
    if (name == wanted && !found) found = value;
  });
  return std::string(found.value_or(""));
}

// What LD_PRELOAD is, as "preload" of a process frame says: absent, others' libraries alone, ours among them; "" where
// a title that the program gave itself (setproctitle) stands in place of its variables.
inline std::string preload_of(std::string_view environment) {
  bool has_variables = environment.empty();
  see_variables(environment, [&](std::string_view, std::string_view) { has_variables = true; });
  if (!has_variables) return "";
  const std::string list = variable_of(environment, "LD_PRELOAD");
  if (list.empty()) return "none";
  return list.find("libwhyrss") == std::string::npos ? "other" : "own";
}

}  // namespace whyrss
