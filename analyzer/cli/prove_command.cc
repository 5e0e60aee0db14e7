#include "cli/prove_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "cli/complain.h"
#include "cli/process_sight.h"
#include "cli/prove_live.h"
#include "cli/prove_rerun.h"
#include "cli/size_option.h"
#include "ingest/load.h"
#include "recording/manifest.h"
#include "report/format.h"
#include "support/file.h"
#include "support/text.h"

namespace whyrss {
namespace {

// Processes of the recording that still live here, main one first: its directories are named host.pid.start.
std::vector<pid_t> living(const RecordingAccount& recording) {
  std::vector<pid_t> pids;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(recording.info.path, error)) {
    const std::vector<std::string> parts = split(entry.path().filename().string(), '.');
    if (parts.size() < 3) continue;
    const auto pid = parse_number<pid_t>(parts[parts.size() - 2]);
    const auto start = parse_number<std::uint64_t>(parts.back());
    if (!pid || !start) continue;
    const ProcessStat stat = activity_of(*pid).stat;
    if (stat.state != 'X' && stat.state != 'Z' && stat.start_ticks == *start) pids.push_back(*pid);
  }
  std::sort(pids.begin(), pids.end());
  return pids;
}

// Start times count from the boot.
bool is_of_this_boot(const std::string& directory) {
  const auto text = read_file(directory + "/manifest.json");
  const auto boot_id = read_file("/proc/sys/kernel/random/boot_id");
  if (!text || !boot_id) return false;
  const auto manifest = parse_manifest(*text, directory);
  return manifest && !manifest->boot_id.empty() && boot_id->starts_with(manifest->boot_id);
}

int prove_recording(const ProveOptions& options) {
  const auto recording = load_account(options.target);
  if (!recording) return complain(recording.error());
  if (is_of_this_boot(options.target))
    if (const std::vector<pid_t> pids = living(*recording); !pids.empty()) return prove_processes(pids);
  RerunOptions rerun{.limit_bytes = {}, .input = options.input, .show_output = options.show_output};
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
