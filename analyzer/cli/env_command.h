// `whyrss env`: the lines that make a job record itself when its command line cannot change.
#pragma once

#include <string>

#include "support/result.h"

namespace whyrss {

struct EnvOptions {
  std::string output;  // -o; empty: whyrss-%h-%p in the current directory, or whyrss-%j-%h where a job shares it
  std::string launcher = "bash";  // bash, slurm, docker
  std::string options;            // for WHYRSS_OPTS; empty: left alone
};

// Prints `export` lines for a POSIX shell, or options of srun or of docker run. 0, or 1 when the library is not
// installed beside the program.
int run_env(const EnvOptions& options);

// The lines themselves. `shim_path`, `output`: absolute; any bytes but NUL.
std::string env_lines(const std::string& shim_path, const std::string& output, const std::string& options);

// Of srun, for its tasks alone: srun itself would hand its own session to other nodes. All without commas, by which it
// separates them.
std::string slurm_options(const std::string& shim_path, const std::string& output, const std::string& options);
// Of docker run, podman run: what the container must see, and the variables.
std::string docker_options(const std::string& shim_path, const std::string& output, const std::string& options);

}  // namespace whyrss
