// `whyrss record`: runs a command with the shim preloaded and a collector beside it, and ends as the
// command ended.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace whyrss {

struct RecordOptions {
  std::string output;            // -o; empty: whyrss-<program>-<pid> in the current directory
  bool force = false;            // -f: replace an existing recording
  std::string mode = "sampled";  // sampled, exact
  std::uint64_t sample_bytes = 64 * 1024;
  std::string touch = "auto";  // auto, off, or a number
  std::uint64_t seed = 0;      // of all sampling; 0: another one in each process
  bool liveness = true;
  bool write_tracking = true;
  bool python_objects = true;
  std::string allocator_stats = "auto";  // auto, on, off
  std::string unwinder = "auto";         // auto, libunwind
  std::string preload;                   // an allocator that is loaded behind the shim
  std::string memory_max;                // --memory-max as given
  double overhead_percent = 3;           // of a core, for the collector's walks
  std::string exe;                       // --exe GLOB: which programs of the tree are traced fully; empty: all
  std::string at_end;        // for compare-allocators: at_end of WHYRSS_OPTS (shim/process/trim_at_end.h); empty: none
  std::string metrics;       // --metrics ADDRESS: live figures over HTTP; empty: as WHYRSS_METRICS says
  std::string metrics_file;  // --metrics-file PATH; empty: as WHYRSS_METRICS_FILE says
  bool quiet = false;
  bool verb_typed = true;  // not `whyrss CMD`, which may have been meant otherwise
  std::vector<std::string> command;

  // Short text about a finished recording for stderr; set by main, so that this file needs no report.
  std::string (*short_verdict)(const std::string& recording_directory) = nullptr;
  // What to do with a finished recording when that text is not wanted; set likewise.
  void (*store_names)(const std::string& recording_directory) = nullptr;
};

// Where it records to; tokens are not expanded yet.
std::string output_pattern(const RecordOptions& options);

// Returns the exit status. When the command died by a signal it does not return but dies likewise.
int run_record(const RecordOptions& options);

}  // namespace whyrss
