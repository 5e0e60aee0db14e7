// Starting the two processes of `record`: the target, which waits at a gate until all is set up, and the
// collector, which is an orphan.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "support/file.h"
#include "support/result.h"

namespace whyrss {

class GatedTarget {
 public:
  // Forks; the child waits. `mask` is the signal mask that the program starts with.
  static Result<GatedTarget> fork_child(const sigset_t& mask);

  [[nodiscard]] pid_t pid() const { return pid_; }

  // Lets the child execvp the command with these variables set. 0, or the errno of the exec (the child
  // has then been reaped).
  int exec(const std::vector<std::string>& command,
           const std::vector<std::pair<std::string, std::string>>& environment);
  // Ends and reaps the child at the gate.
  void cancel();

 private:
  pid_t pid_ = 0;
  Fd gate_;    // we write the variables and arguments, NUL-terminated
  Fd result_;  // the child writes the errno of a failed exec; closed by a successful one
};

struct CollectorLink {
  Fd control;           // see collect/loop/control.h
  std::string session;  // "<32 hex>:<pool path>"
};

// Runs `collect` in an orphan process of its own, which ends with what it returns; waits until it is
// ready. It is a fork: to load the program once more would take longer than all that the collector does for a short
// one.
Result<CollectorLink> start_collector(const std::function<int(int ready_fd, int control_fd)>& collect);

}  // namespace whyrss
