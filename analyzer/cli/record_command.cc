#include "cli/record_command.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <optional>

#include "cli/collect_command.h"
#include "cli/exit_status.h"
#include "cli/near_miss.h"
#include "cli/progress.h"
#include "cli/record_signals.h"
#include "cli/shell_words.h"
#include "cli/size_option.h"
#include "collect/cgroup/memory_group.h"
#include "collect/loop/control.h"
#include "collect/read/target_kind.h"
#include "collect/start/launch.h"
#include "collect/start/recording_directory.h"
#include "procfs/process_stat.h"
#include "report/wording/format.h"
#include "support/clock.h"
#include "support/file.h"
#include "support/last_words.h"
#include "support/process_title.h"
#include "support/text.h"

namespace whyrss {
namespace {

constexpr std::int64_t kCollectorEndsNs = 2'000'000'000;

int fail_with(int status, const std::string& text) {
  say(text);
  return status;
}

std::string own_program() { return read_link("/proc/self/exe"); }

// <prefix>/bin/whyrss -> <prefix>/lib/libwhyrss.so
std::string shim_library() {
  const auto prefix = std::filesystem::path(own_program()).parent_path().parent_path();
  return (prefix / "lib" / "libwhyrss.so").string();
}

std::string option_text(const RecordOptions& options) {
  std::string text = fmt::format(
      "mode={},sample_bytes={},touch={},liveness={},unwinder={},write_tracking={},python_objects={},"
      "allocator_stats={},overhead={}",
      options.mode, options.sample_bytes, options.touch, options.liveness ? "on" : "off", options.unwinder,
      options.write_tracking ? "on" : "off", options.python_objects ? "on" : "off", options.allocator_stats,
      options.overhead_percent);
  if (options.seed != 0) text += fmt::format(",seed={}", options.seed);
  if (!options.exe.empty()) text += ",exe=" + options.exe;
  if (!options.at_end.empty()) text += ",at_end=" + options.at_end;
  return text;
}

// Ours first, then the allocator, then what was there.
std::string preload_value(const std::string& library, const std::string& allocator) {
  std::vector<std::string> libraries{library};
  if (!allocator.empty()) libraries.push_back(allocator);
  const char* before = std::getenv("LD_PRELOAD");
  for (const std::string& part : split(before != nullptr ? before : "", ':'))
    if (!part.empty() && part != library) libraries.push_back(part);
  return join(libraries, ":");
}

Status check_options(const RecordOptions& options) {
  const std::string library = shim_library();
  if (access(library.c_str(), R_OK) != 0)
    return Error{fmt::format("cannot find the library {}: install it beside the program", library)};
  if (library.find_first_of(": ") != std::string::npos)
    return Error{fmt::format("{} cannot be preloaded: its path holds a blank or a colon", library)};
  if (!options.preload.empty() && options.preload.find('/') != std::string::npos &&
      access(options.preload.c_str(), R_OK) != 0)
    return system_error("cannot preload", options.preload);
  return Done{};
}

// An empty path without --memory-max.
Result<MemoryGroup> make_memory_group(const RecordOptions& options, pid_t target) {
  if (options.memory_max.empty()) return MemoryGroup{};
  const auto limit = parse_size(options.memory_max);
  return limit ? confine(target, *limit, own_place()) : Error{limit.error()};
}

// Of this program alone: ru_maxrss is that of the one before its exec, too. The command was a copy of it before its
// own.
std::int64_t own_high_water_kib() {
  const auto status = read_file("/proc/self/status");
  return status ? status_value(*status, "VmHWM").value_or(0) : 0;
}

struct CommandEnd {
  siginfo_t info{};
  long max_rss_kib = 0;  // of it, or of a child that it waited for
};

// Waits for the command, stops and goes on with it; other children (as PID 1) are reaped in passing.
CommandEnd wait_for_command(pid_t pid) {
  while (true) {
    siginfo_t info{};
    const int failed = waitid(P_ALL, 0, &info, WEXITED | WSTOPPED | WNOWAIT);
    if (failed != 0 && errno == ECHILD) return {info};  // SIGCHLD is ignored: how it ended is not known
    const bool ended =
        failed == 0 && (info.si_code == CLD_EXITED || info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED);
    if (ended && info.si_pid == pid) stop_passing_signals();
    rusage usage{};
    if (failed == 0) {  // glibc's waitid has no usage
      siginfo_t same{};
      syscall(SYS_waitid, P_PID, info.si_pid, &same, WEXITED | WSTOPPED | WNOHANG, &usage);
    }
    if (ended && info.si_pid == pid) return {info, usage.ru_maxrss};
    // Asked to stop itself: then the shell must see the job stopped. SIGCONT comes to the whole group.
    if (take_stop_request()) raise(SIGSTOP);
  }
}

struct Ending {
  bool complete = false;
  std::vector<std::string> faults;
  std::optional<int> living;
};

// What the collector has said before it gave its session.
void say_how_it_begins(LineReader& from_collector, bool quiet) {
  while (const auto line = from_collector.next()) {
    std::string_view rest = *line;
    const std::string_view word = take_word(rest);
    rest.remove_prefix(rest.empty() ? 0 : 1);
    if (word == "warning") say(printable(rest));
    if (word == "metrics" && !quiet) say(printable(fmt::format("live figures: {}", rest)));
  }
}

// The collector ends by itself once nothing is traced any more. In exact mode it may have some seconds of events to
// store.
Ending wait_for_collector(int control_fd, LineReader& reader, bool quiet) {
  constexpr int kProgressMs = 200;
  Progress progress;
  Ending ending;
  const std::int64_t deadline_ns = monotonic_ns() + kCollectorEndsNs;
  while (true) {
    while (const auto line = reader.next()) {
      std::string_view rest = *line;
      const std::string_view word = take_word(rest);
      if (word == "fault") ending.faults.emplace_back(rest.substr(rest.starts_with(' ') ? 1 : 0));
      if (word == "living") ending.living = parse_number<int>(take_word(rest));
    }
    ending.complete = reader.at_end();
    const std::int64_t left_ns = deadline_ns - monotonic_ns();
    if (ending.complete || ending.living || left_ns <= 0) return ending;
    if (!quiet) progress.at("finishing the recording");
    pollfd entry{.fd = control_fd, .events = POLLIN, .revents = 0};
    poll(&entry, 1, std::min(static_cast<int>(left_ns / 1'000'000) + 1, kProgressMs));
  }
}

void send_line(int control_fd, const std::string& line) {
  const std::string text = line + "\n";
  send(control_fd, text.data(), text.size(), MSG_NOSIGNAL);
}

// What could not be recorded, in any case; the verdict, unless `quiet`, and the names of native code for the recording.
void conclude(const RecordOptions& options, const std::string& directory, const Ending& ending) {
  if (!ending.faults.empty()) say(printable(fmt::format("{} is incomplete: {}", directory, join(ending.faults, "; "))));
  if (ending.living && !options.quiet)
    say(fmt::format("{} process{} of it go{} on; {} is complete when {} end{}", *ending.living,
                    *ending.living == 1 ? "" : "es", *ending.living == 1 ? "es" : "", directory,
                    *ending.living == 1 ? "it" : "they", *ending.living == 1 ? "s" : ""));
  try {
    if (!options.quiet && options.short_verdict != nullptr) {
      const std::string verdict = options.short_verdict(directory);
      write_fully(STDERR_FILENO, verdict);
      if (!verdict.empty() && verdict.back() != '\n') write_fully(STDERR_FILENO, "\n");
    } else if (!ending.living && options.store_names != nullptr) {
      options.store_names(directory);
    }
  } catch (const std::exception& error) {  // a report must never change how the command ended
    if (!options.quiet) say(fmt::format("no verdict: {}", error.what()));
  }
  if (!options.quiet) say(fmt::format("next: whyrss report {}", shell_word(directory)));
}

int cannot_exec(const RecordOptions& options, int reason) {
  const bool missing = reason == ENOENT || reason == ENOTDIR;
  const std::string& command = options.command.front();
  const std::string hint = options.verb_typed ? process_hint(command) : command_hint(options.command);
  return fail_with(missing ? kNotFound : kNotExecutable,
                   hint.empty() ? fmt::format("cannot run {}: {}", command, std::strerror(reason)) : hint);
}

}  // namespace

std::string output_pattern(const RecordOptions& options) {
  if (!options.output.empty()) return options.output;
  const std::string program = std::filesystem::path(options.command.front()).filename().string();
  return fmt::format("whyrss-{}-%p", without_tokens(program));
}

int run_record(const RecordOptions& options) {
  if (options.command.empty()) return fail_with(kCannotRecord, "no command to record");
  const std::string& command = options.command.front();
  const TargetProgram program = inspect_target(command);
  if (program.kind == TargetKind::not_found) return cannot_exec(options, ENOENT);
  if (program.kind == TargetKind::not_executable) return cannot_exec(options, EACCES);
  if (const Status usable = check_options(options); !usable) return fail_with(kCannotRecord, usable.error());

  const sigset_t mask = block_passed_signals();
  auto target = GatedTarget::fork_child(mask);
  if (!target) return fail_with(kCannotRecord, target.error());
  std::signal(SIGCHLD, SIG_DFL);  // after the fork: the command keeps what it was started with
  const std::string directory = absolute_path(expand_tokens(output_pattern(options), target->pid()));
  auto group = make_memory_group(options, target->pid());
  if (!group) {
    target->cancel();
    return fail_with(kCannotRecord, group.error());
  }
  auto collector = start_collector([&](int ready_fd, int control_fd) {
    show_arguments({"whyrss", "collect", "--output", directory});
    return run_collect({.output = without_tokens(directory),
                        .target = target->pid(),
                        .ready_fd = ready_fd,
                        .control_fd = control_fd,
                        .force = options.force,
                        .memory_group = group->path,
                        .remove_group = group->is_ours,
                        .options = option_text(options),
                        .metrics = options.metrics,
                        .metrics_file = options.metrics_file,
                        .command = options.command,
                        .store_names = options.store_names});
  });
  if (!collector) {
    target->cancel();
    if (group->is_ours) remove_group(group->path);
    return fail_with(kCannotRecord, collector.error());
  }

  if (program.kind != TargetKind::traceable && !options.quiet)
    say(fmt::format("{} {}: its memory is explained by the kernel alone, without code lines", program.path,
                    describe(program.kind)));
  std::vector<std::pair<std::string, std::string>> environment;
  if (!refuses_preload(program.kind))
    environment = {{"LD_PRELOAD", preload_value(shim_library(), options.preload)},
                   {"WHYRSS_OUTPUT", directory},
                   {"WHYRSS_SESSION", collector->session},
                   {"WHYRSS_OPTS", option_text(options)}};
  const int control_fd = collector->control.get();
  LineReader from_collector(control_fd);
  say_how_it_begins(from_collector, options.quiet);
  pass_signals_to(target->pid(), mask);
  if (const int reason = target->exec(options.command, environment); reason != 0) {
    stop_passing_signals();
    send_line(control_fd, "failed");
    wait_for_collector(control_fd, from_collector, options.quiet);
    return cannot_exec(options, reason);
  }
  send_line(control_fd, "started");

  const auto [end, max_rss_kib] = wait_for_command(target->pid());
  if (max_rss_kib > own_high_water_kib()) send_line(control_fd, fmt::format("max_rss {}", max_rss_kib));
  const bool exited = end.si_code == CLD_EXITED || end.si_code == 0;
  send_line(control_fd, exited ? fmt::format("exit {}", end.si_status)
                               : fmt::format("signal SIG{}", sigabbrev_np(end.si_status) != nullptr
                                                                 ? sigabbrev_np(end.si_status)
                                                                 : std::to_string(end.si_status)));
  const Ending ending = wait_for_collector(control_fd, from_collector, options.quiet);
  // The collector has, unless it was killed. One that is still at its work reads what the group counted.
  if (group->is_ours && ending.complete) remove_group(group->path);
  conclude(options, directory, ending);
  return exited ? end.si_status : die_by(end.si_status);
}

}  // namespace whyrss
