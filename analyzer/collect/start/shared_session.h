// Recordings that the commands of one job on one host share: WHYRSS_OUTPUT with %j.
//
//   command A   no such recording: its collector makes one, with a file `join` in it
//   command B   takes the lock of `join`, finds it empty: opens the pool, lets go of the lock, and gives A's session
//   collector   all processes have ended, and so has the shell that they were started from: takes the lock; if no
//               other process has the pool open, writes into `join`, and ends
//   command C   finds `join` closed: its collector makes DIR.1
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "collect/start/pool_file.h"
#include "support/file.h"

namespace whyrss {

// Whether `output`, before its tokens are expanded, names a recording that commands of a job share.
bool is_shared_output(const std::string& output);

// What another collector of this user on this host records to `path`, or to path.1, path.2 ..., up to `own`. Its pool
// is open as long as this lives, so that the collector does not end meanwhile.
struct JoinedSession {
  std::string value;  // as WHYRSS_SESSION holds it
  std::string pool_path;
  Fd pool;
};
std::optional<JoinedSession> join_session(const std::string& path, const std::string& own = {});

// Until `pid` has mapped the pool, or has ended, or long enough.
void wait_until_attached(const JoinedSession& joined, pid_t pid);

// The collector's side. A default one is of a recording that no command may join.
class SessionGate {
 public:
  SessionGate() = default;
  // `target`: the first command. More are expected while the leader of its session lives, the shell.
  static SessionGate open(const std::string& recording_directory, pid_t target);

  // Whether the shell may start more commands.
  [[nodiscard]] bool expects_more() const;
  // False when a command is joining; else none can any more.
  bool close(const PoolFile& pool);

 private:
  Fd file_;
  pid_t leader_ = 0;
  std::uint64_t leader_ticks_ = 0;
};

}  // namespace whyrss
