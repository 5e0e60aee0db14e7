// `whyrss collect` (hidden): the collector process. Started by `record`, and by the shim itself when
// only LD_PRELOAD and WHYRSS_OUTPUT are set.
//
// Option names: --output DIR --target PID --ready-fd FD [--control-fd FD] [--force] [--options STR]
// [--memory-group DIR [--remove-group]] [--metrics ADDRESS] [--metrics-file PATH] [-- CMD ARGS...]
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace whyrss {

struct CollectOptions {
  std::string output;                // directory, tokens %p %h %j %r allowed; made absolute
  pid_t target = 0;                  // first process of the tree
  int ready_fd = -1;                 // gets "WHYRSS_SESSION=<32 hex>:<pool path>\n" or "!reason\n", then is closed;
                                     // not from `record`: "?text\n" before the session where live figures fail
  int control_fd = -1;               // only from `record`: a socket, see collect/loop/control.h
  bool force = false;                // replace an existing recording instead of choosing DIR.1, DIR.2 ...
  std::string memory_group;          // directory of the cgroup that record made for the target
  bool remove_group = false;         // when all has ended
  std::string options;               // what WHYRSS_OPTS holds; empty: the environment's
  std::string metrics;               // address at which live figures are served; empty: as the environment says
  std::string metrics_file;          // or a file with them; tokens as in output
  std::vector<std::string> command;  // for the manifest; empty: read from /proc

  // What to do with a finished recording when no `record` is there to do it; set by main.
  void (*store_names)(const std::string& recording_directory) = nullptr;
};

// Detaches from the caller's session, terminal and descriptors, and returns when the last traced
// process has ended. 0, or 1 when it could not start (the reason went to ready_fd).
int run_collect(const CollectOptions& options);

}  // namespace whyrss
