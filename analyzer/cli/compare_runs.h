// Runs a command again and again, bare or recorded, and leaves nothing behind: while a Runner lives, whatever
// the command leaves running becomes our child and is ended before the next run.
//
// Signals that end a job (INT, TERM, HUP, QUIT) are held back meanwhile: a run that is under way gets them, and is
// killed when it goes on for 3 s; then interrupted() says so, and no other run begins.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <csignal>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "support/result.h"

namespace whyrss {

struct RunPlan {
  std::vector<std::string> command;
  std::string library;                // preloaded; "": none
  std::vector<std::string> settings;  // VARIABLE=VALUE
  std::string input = "/dev/null";    // stdin
  bool show_output = false;           // else stdout goes to /dev/null and stderr to `error_output`
  std::string error_output;           // a file
};

struct RunResult {
  int status = 0;  // as of waitpid
  double wall_s = 0;
  rusage usage{};                // of the command and the children that it waited for
  std::size_t left_running = 0;  // processes that it left, and that were ended
};

// "" for a good end, else "exit status 3", "killed by SIGSEGV".
std::string describe_end(int status);

class Runner {
 public:
  Runner();
  ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  Result<RunResult> run_bare(const RunPlan& plan);
  // `record` makes the recording; it is called in a process of its own and returns its exit status.
  Result<RunResult> run_recorded(const RunPlan& plan, const std::function<int()>& record);
  // The same for work that is not timed: its exit status, or -1.
  int run_aside(const std::function<int()>& work);

  // The signal that ended it, 0 for none. Walks at what has come meanwhile, too.
  int interrupted();

 private:
  // `child` runs in a process of its own, and leaves it.
  pid_t start(const std::function<void()>& child);
  Result<RunResult> run(const RunPlan& plan, const std::function<void()>& child);
  int wait_for(pid_t pid, rusage& usage);
  std::size_t end_others();

  sigset_t held_{}, before_{};
  int signal_ = 0;
};

}  // namespace whyrss
