#include "shim/process/collector_start.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <array>

#include "shim/events/emit.h"
#include "shim/events/session_state.h"

namespace whyrss::shim {
namespace {

constexpr std::uint64_t kReadyNs = 10'000'000'000;
constexpr std::string_view kLibraryName = "libwhyrss.so";
constexpr std::string_view kPreload = "LD_PRELOAD=";
constexpr std::size_t kMaxEnvironment = 4096;

bool is_own(std::string_view library) noexcept {
  if (!library.ends_with(kLibraryName)) return false;
  return library.size() == kLibraryName.size() || library[library.size() - kLibraryName.size() - 1] == '/';
}

// <prefix>/lib/libwhyrss.so -> <prefix>/bin/whyrss, else WHYRSS_COLLECTOR.
bool find_collector(const char* const* environment, Text& path) noexcept {
  std::string_view own(own_path());
  const std::size_t slash = own.rfind('/');
  if (slash != std::string_view::npos) {
    path.add(std::string_view(own.data(), slash)).add("/../bin/whyrss");
    if (!is_raw_error(raw_syscall(SYS_access, as_long(path.c_str()), 1 /* X_OK */))) return true;
  }
  const char* named = environment_value(environment, "WHYRSS_COLLECTOR");
  if (named == nullptr) return false;
  path = Text{};
  path.add(named);
  return !is_raw_error(raw_syscall(SYS_access, as_long(path.c_str()), 1));
}

struct Launch {
  const char* program;
  const char* const* arguments;
  const char* const* environment;
  int ready_fd;
};

// In the grandchild: only system calls from here on; the memory is a copy.
[[noreturn]] void become_collector(const Launch& launch) noexcept {
  const long null = raw_syscall(SYS_openat, AT_FDCWD, as_long("/dev/null"), O_RDWR);
  for (long fd = 0; fd < 3; ++fd)
    if (null >= 0 && null != fd) raw_syscall(SYS_dup3, null, fd, 0);
  raw_syscall(SYS_fcntl, launch.ready_fd, F_SETFD, 0);
  const std::uint64_t no_signals = 0;
  raw_syscall(SYS_rt_sigprocmask, SIG_SETMASK, as_long(&no_signals), 0, sizeof(no_signals));
  raw_syscall(SYS_execve, as_long(launch.program), as_long(launch.arguments), as_long(launch.environment));
  raw_syscall(SYS_exit_group, 127);
  __builtin_unreachable();
}

// A child by plain clone: no atfork handlers run, and exit signal 0 keeps SIGCHLD away from the program. Untraced: the
// kernel reports a child without SIGCHLD as PTRACE_EVENT_CLONE (kernel/fork.c), and a debugger would take it for a
// thread of the program, and its exec for the program's own.
long clone_silently() noexcept { return raw_syscall(SYS_clone, CLONE_UNTRACED); }

// The collector begins once the child between is gone: it would take it for one of the program's.
bool launch_detached(const Launch& launch) noexcept {
  int gate_fds[2] = {-1, -1};
  if (is_raw_error(raw_syscall(SYS_pipe2, as_long(gate_fds), O_CLOEXEC))) return false;
  const RawFile gate(gate_fds[0]);
  const RawFile opener(gate_fds[1]);
  char word = 0;
  const long middle = clone_silently();
  if (middle == 0) {
    raw_syscall(SYS_setsid);
    if (clone_silently() == 0) {
      raw_syscall(SYS_close, opener.number());  // else the program's death would not open the gate
      while (raw_syscall(SYS_read, gate.number(), as_long(&word), 1) == -EINTR) {
      }
      become_collector(launch);
    }
    raw_syscall(SYS_exit_group, 0);
  }
  if (is_raw_error(middle)) return false;
  while (raw_syscall(SYS_wait4, middle, 0, __WALL, 0) == -EINTR) {
  }
  return !is_raw_error(raw_syscall(SYS_write, opener.number(), as_long(&word), 1));
}

// Cuts "?TEXT\n" off the front of what has come: the session follows. The whole of it comes in one write.
void take_warning(std::string_view& text, Text& warning) noexcept {
  const std::size_t end = text.find('\n');
  if (!text.starts_with('?') || end == std::string_view::npos) return;
  warning.clear();
  warning.add(std::string_view(text.data() + 1, end - 1));
  text.remove_prefix(end + 1);
}

// The session, or the collector's reason why there is none. `reason` beside a session: what does not work.
bool read_ready_line(int fd, Text& session_value, Text& reason) noexcept {
  constexpr std::string_view kWord = "WHYRSS_SESSION";
  static constinit std::array<char, 8192> line{};  // constructor only; two paths may be in it
  std::size_t filled = 0;
  const std::uint64_t deadline = now_ns() + kReadyNs;
  while (filled < line.size()) {
    const std::uint64_t now = now_ns();
    if (now >= deadline) return false;
    pollfd wait{.fd = fd, .events = POLLIN, .revents = 0};
    const long ready = raw_syscall(SYS_poll, as_long(&wait), 1, static_cast<long>((deadline - now) / 1'000'000 + 1));
    if (ready == -EINTR) continue;
    if (ready <= 0) return false;
    const long got = raw_syscall(SYS_read, fd, as_long(line.data() + filled), static_cast<long>(line.size() - filled));
    if (got <= 0) return false;  // the collector went away without a word
    filled += static_cast<std::size_t>(got);
    std::string_view text(line.data(), filled);
    take_warning(text, reason);
    if (!text.ends_with('\n')) continue;
    text.remove_suffix(1);
    if (text.starts_with('!')) reason.add(std::string_view(text.data() + 1, text.size() - 1));
    if (!text.starts_with(kWord) || text.size() <= kWord.size() + 1) return false;
    text.remove_prefix(kWord.size() + 1);  // a blank or =
    session_value.add(text);
    return true;
  }
  return false;
}

}  // namespace

bool without_own_preload(std::string_view entry, Text& result, Text& own) noexcept {
  if (!entry.starts_with(kPreload)) return false;
  entry.remove_prefix(kPreload.size());
  result.add(kPreload);
  bool removed = false;
  bool first = true;
  while (!entry.empty()) {
    const std::size_t end = entry.find_first_of(": ");  // the loader takes both as separators
    const std::string_view library(entry.data(), end == std::string_view::npos ? entry.size() : end);
    entry.remove_prefix(end == std::string_view::npos ? entry.size() : end + 1);
    if (is_own(library)) {
      removed = true;
      own.clear();
      own.add(library);
    } else if (!library.empty()) {
      if (!first) result.add(":");
      result.add(library);
      first = false;
    }
  }
  return removed && !result.cut();
}

bool start_collector(const char* output_dir, const char* const* environment, Text& session_value,
                     Text& mistake) noexcept {
  static constinit Text program, preload, own, pid, ready, reason;  // constructor only; off the stack
  if (!find_collector(environment, program)) {
    mistake.add("no collector found beside ").add(own_path()).add(" nor in WHYRSS_COLLECTOR (tracing is off)");
    return false;
  }
  static constinit std::array<const char*, kMaxEnvironment + 1> copy{};
  std::size_t count = 0;
  for (const char* const* entry = environment; *entry != nullptr && count < kMaxEnvironment; ++entry) {
    if (std::string_view(*entry).starts_with("WHYRSS_SESSION=")) continue;
    const bool ours = without_own_preload(*entry, preload, own);
    copy[count++] = ours ? preload.c_str() : *entry;
  }
  int pipe_fds[2] = {-1, -1};
  if (is_raw_error(raw_syscall(SYS_pipe2, as_long(pipe_fds), O_CLOEXEC))) {
    mistake.add("no descriptor is free for the collector's answer (tracing is off)");
    return false;
  }
  const RawFile read_end(pipe_fds[0]);
  bool launched = false;
  {
    // Above stdio, so that /dev/null there does not replace it.
    const RawFile low_write_end(pipe_fds[1]);
    const RawFile write_end(raw_syscall(SYS_fcntl, pipe_fds[1], F_DUPFD_CLOEXEC, 3));
    pid.add(static_cast<std::uint64_t>(raw_syscall(SYS_getpid)));
    ready.add(static_cast<std::uint64_t>(write_end ? write_end.number() : 0));
    const char* const arguments[] = {program.c_str(), "collect",    "--output",    output_dir, "--target",
                                     pid.c_str(),     "--ready-fd", ready.c_str(), nullptr};
    launched = write_end && launch_detached({.program = program.c_str(),
                                             .arguments = arguments,
                                             .environment = copy.data(),
                                             .ready_fd = write_end.number()});
  }
  if (launched && read_ready_line(read_end.number(), session_value, reason)) {
    if (!reason.view().empty()) complain(reason.view(), {});
    return true;
  }
  mistake.add("the collector did not start: ");
  if (!reason.view().empty())
    mistake.add(reason.view());
  else
    mistake.add(program.c_str()).add(" collect --output ").add(output_dir);
  mistake.add(" (tracing is off)");
  return false;
}

}  // namespace whyrss::shim
