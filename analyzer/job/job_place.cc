#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "job/reduce.h"
#include "support/text.h"

namespace whyrss {
namespace {

using Environment = std::map<std::string, std::string>;

std::string first_of(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const auto found = environment.find(name); found != environment.end() && !found->second.empty())
      return found->second;
  return {};
}

std::optional<std::int64_t> first_number(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const auto found = environment.find(name); found != environment.end())
      if (const auto number = parse_number(found->second); number && *number >= 0) return number;
  return std::nullopt;
}

}  // namespace

// RANK comes first: torchrun gives each worker one, within a task of Slurm's.
JobPlace job_place(const Environment& environment) {
  return {.job = first_of(environment, {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "TORCHELASTIC_RUN_ID"}),
          .node = first_of(environment, {"SLURMD_NODENAME", "NODE_NAME"}),
          .node_list = first_of(environment, {"SLURM_JOB_NODELIST", "SLURM_JOB_NUM_NODES"}),
          .rank = first_number(environment, {"RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}),
          .local_rank = first_number(environment, {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"}),
          .world_size = first_number(environment, {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"})};
}

std::string first_place(const RecordingAccount& recording, std::string JobPlace::*part) {
  for (const ProcessAccount& process : recording.processes)
    if (std::string text = job_place(process.environment).*part; !text.empty()) return text;
  return {};
}

}  // namespace whyrss
