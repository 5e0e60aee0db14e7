#include "cli/prove_command.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/complain.h"
#include "cli/process_snapshot.h"
#include "cli/progress.h"
#include "cli/prove_live.h"
#include "cli/prove_rerun.h"
#include "cli/size_option.h"
#include "load/load.h"
#include "recording/recording_folder.h"
#include "report/wording/format.h"
#include "support/file.h"
#include "support/folder.h"
#include "support/text.h"

namespace whyrss {
namespace {

// Processes of the recording that still live here, by their ids.
std::vector<pid_t> living(const Folder& recording) {
  std::vector<pid_t> pids;
  const auto processes = list_processes(recording);
  if (!processes) return pids;
  for (const ProcessFolder& process : *processes) {
    const auto pid = static_cast<pid_t>(process.pid);
    const ProcessStat stat = activity_of(pid).stat;
    if (!stat.has_ended() && stat.start_ticks == process.start_ticks) pids.push_back(pid);
  }
  std::sort(pids.begin(), pids.end());
  return pids;
}

// Start times count from the boot.
bool is_of_this_boot(const Folder& recording) {
  const auto manifest = read_manifest(recording);
  return manifest && is_of_this_boot(*manifest);
}

int prove_recording(const ProveOptions& options) {
  const auto folder = open_recording(options.target);
  if (!folder) return complain(folder.error());
  Progress progress;
  const auto recording = load_account(*folder, {.progress = shown_by(progress)});
  progress.clear();
  if (!recording) return complain(recording.error());
  if (is_of_this_boot(*folder))
    if (const std::vector<pid_t> pids = living(*folder); !pids.empty()) return prove_processes(pids);
  RerunOptions rerun{
      .limit_bytes = {}, .input = options.input, .show_output = options.show_output, .agreed = options.yes};
  if (!options.memory_max.empty()) rerun.limit_bytes = *parse_size(options.memory_max);
  return prove_again(*recording, rerun);
}

}  // namespace

int run_prove(const ProveOptions& options) {
  const auto pid = parse_number<pid_t>(options.target);
  if (!pid) return prove_recording(options);
  if (*pid <= 0) return complain(fmt::format("prove {}: not the id of a process", options.target));
  return prove_processes(options.tree ? tree_of(*pid) : std::vector<pid_t>{*pid});
}

}  // namespace whyrss
