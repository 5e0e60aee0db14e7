// wait and its family. Where the program is PID 1 or a child subreaper, the collector that we started
// becomes its child when its parent has gone: a wait for any child must not return it, nor count it.
// Everywhere else they forward: one extra system call, and only while we trace.
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <array>

#include "shim/events/session_state.h"
#include "shim/hooks/entry_allocate.h"
#include "shim/process/process_events.h"
#include "shim/sys/raw_io.h"
#include "shim/sys/real.h"

namespace whyrss::shim {
namespace {

// In a pid namespace of its own the program may have a child whose pid only looks like the collector's: to
// hide that one from it would be worse than to show it a process that it does not know.
bool is_collector(pid_t pid) noexcept {
  Text path;
  path.add("/proc/").add(static_cast<std::uint64_t>(pid)).add("/comm");
  std::array<char, 32> name;
  return read_file(path.c_str(), name).starts_with("whyrss");
}

// The collector's pid when it is a child of this process, else 0.
pid_t collector_child() noexcept {
  const Session& self = session();
  if (self.phase.load(std::memory_order_acquire) != Phase::live) return 0;
  const auto reader = static_cast<pid_t>(self.pool.header->reader_pid.load(std::memory_order_relaxed));
  if (reader <= 0) return 0;
  siginfo_t info{};
  const long result = own_syscall(SYS_waitid, P_PID, reader, as_long(&info), WEXITED | WNOHANG | WNOWAIT | __WALL, 0);
  return is_raw_error(result) || !is_collector(reader) ? 0 : reader;
}

// True when /proc/self/task/TID/children of any thread names a child other than `collector`. Unknown
// (no such file) counts as true.
bool has_other_child(pid_t collector) noexcept {
  const RawFile directory("/proc/self/task", O_RDONLY | O_DIRECTORY);
  if (!directory) return true;
  alignas(8) std::array<char, 2048> entries;
  while (true) {
    const long got =
        own_syscall(SYS_getdents64, directory.number(), as_long(entries.data()), static_cast<long>(entries.size()));
    if (got <= 0) return false;
    for (long at = 0; at < got;) {
      // struct linux_dirent64: u64 inode, s64 offset, u16 record length, u8 type, name
      const char* entry = entries.data() + at;
      std::uint16_t length = 0;
      std::memcpy(&length, entry + 16, sizeof(length));
      at += length;
      const std::string_view name(entry + 19);
      if (name.starts_with('.')) continue;
      Text path;
      path.add("/proc/self/task/").add(name).add("/children");
      std::array<char, 256> text;
      const RawFile file(path.c_str(), O_RDONLY);
      if (!file) return true;
      std::string_view children(text.data(), file.read_all(text));
      if (children.size() == text.size()) return true;
      while (!children.empty()) {
        const std::uint64_t child = take_number(children);
        if (child != 0 && child != static_cast<std::uint64_t>(collector)) return true;
        if (!children.empty()) children.remove_prefix(1);
      }
    }
  }
}

// waitid for any child but the collector, without taking it away (WNOWAIT). 0 and `info` filled (si_pid
// 0: nothing yet, with WNOHANG), or -1 with errno.
int peek_other_child(pid_t collector, siginfo_t& info, int options) noexcept {
  while (true) {
    if (!has_other_child(collector)) {
      errno = ECHILD;
      return -1;
    }
    info.si_pid = 0;
    if (real.waitid(P_ALL, 0, &info, options | WNOWAIT) != 0) return -1;
    if (info.si_pid != collector) return 0;
    real.waitid(P_PID, static_cast<id_t>(collector), &info, WEXITED | WNOHANG | __WALL);
  }
}

pid_t wait_for_any(int* status, int options, struct rusage* usage) noexcept {
  const pid_t collector = collector_child();
  if (collector == 0) return real.wait4(-1, status, options, usage);
  while (true) {
    siginfo_t info{};
    const int id_options = WEXITED | ((options & WUNTRACED) != 0 ? WSTOPPED : 0) |
                           (options & (WCONTINUED | WNOHANG | __WALL | __WCLONE | __WNOTHREAD));
    if (peek_other_child(collector, info, id_options) != 0) return -1;
    if (info.si_pid == 0) return 0;
    const pid_t pid = real.wait4(info.si_pid, status, options | WNOHANG, usage);
    if (pid != 0 && !(pid < 0 && errno == ECHILD)) return pid;  // else another thread took it
  }
}

// A child that a signal ended had no last walk, one that ended by itself may have missed it: the kernel says here alone
// how large it ever was.
pid_t wait_observed(pid_t pid, int* status, int options, struct rusage* usage) noexcept {
  resolve_real();
  int own_status = 0;
  struct rusage own_usage {};
  if (status == nullptr) status = &own_status;
  if (usage == nullptr) usage = &own_usage;
  const pid_t ended = pid == -1 ? wait_for_any(status, options, usage) : real.wait4(pid, status, options, usage);
  if (ended > 0 && (WIFSIGNALED(*status) || WIFEXITED(*status)))
    observe_ended_child(static_cast<std::uint32_t>(ended), usage->ru_maxrss);
  return ended;
}

}  // namespace
}  // namespace whyrss::shim

using namespace whyrss::shim;  // NOLINT(google-build-using-namespace): entries are global C functions

WHYRSS_ENTRY pid_t wait(int* status) { return wait_observed(-1, status, 0, nullptr); }

WHYRSS_ENTRY pid_t waitpid(pid_t pid, int* status, int options) { return wait_observed(pid, status, options, nullptr); }

WHYRSS_ENTRY pid_t wait3(int* status, int options, struct rusage* usage) noexcept {
  return wait_observed(-1, status, options, usage);
}

WHYRSS_ENTRY pid_t wait4(pid_t pid, int* status, int options, struct rusage* usage) noexcept {
  return wait_observed(pid, status, options, usage);
}

WHYRSS_ENTRY int waitid(idtype_t type, id_t id, siginfo_t* info, int options) {
  resolve_real();
  const pid_t collector = type == P_ALL ? collector_child() : 0;
  if (collector == 0) return real.waitid(type, id, info, options);
  while (true) {
    siginfo_t seen{};
    if (peek_other_child(collector, seen, options) != 0) return -1;
    if (seen.si_pid == 0 || (options & WNOWAIT) != 0) {
      if (info != nullptr) *info = seen;
      return 0;
    }
    if (real.waitid(P_PID, static_cast<id_t>(seen.si_pid), info, options | WNOHANG) == 0) return 0;
    if (errno != ECHILD) return -1;
  }
}
