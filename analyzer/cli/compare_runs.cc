#include "cli/compare_runs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>

#include "cli/exit_status.h"
#include "support/clock.h"
#include "support/file.h"
#include "support/last_words.h"
#include "support/text.h"

namespace whyrss {
namespace {

constexpr std::array kEnding{SIGINT, SIGTERM, SIGHUP, SIGQUIT};
// After a signal: how long a run may take to end by itself.
constexpr std::int64_t kPatienceNs = 3'000'000'000;
// How long what a run left behind may go on: the last part of a pipeline, and the collector, which ends at most
// a second after the last process that it follows.
constexpr std::int64_t kLeftoverNs = 1'000'000'000, kCollectorNs = 5'000'000'000;
// What cannot even be killed by then hangs in the kernel.
constexpr std::int64_t kGiveUpNs = 15'000'000'000;
void open_as(const std::string& path, int flags, int fd) {
  const int opened = open(path.c_str(), flags, 0600);
  if (opened < 0) {
    say(fmt::format("cannot open {}: {}", path, std::strerror(errno)));
    _exit(kCannotRecord);
  }
  dup2(opened, fd);
  if (opened > STDERR_FILENO) close(opened);
}

void prepare_streams(const RunPlan& plan) {
  open_as(plan.input, O_RDONLY, STDIN_FILENO);
  if (plan.show_output) return;
  open_as("/dev/null", O_WRONLY, STDOUT_FILENO);
  open_as(plan.error_output, O_WRONLY | O_CREAT | O_TRUNC, STDERR_FILENO);
}

void apply_settings(const RunPlan& plan) {
  for (const std::string& setting : plan.settings) {
    const std::size_t equals = setting.find('=');
    setenv(setting.substr(0, equals).c_str(), setting.substr(equals + 1).c_str(), 1);
  }
}

// The allocator first, then what was there, but never our own library: this is the run without it.
void preload_alone(const std::string& library) {
  std::vector<std::string> libraries;
  if (!library.empty()) libraries.push_back(library);
  const char* before = std::getenv("LD_PRELOAD");
  for (std::string& part : split(before != nullptr ? before : "", ':'))
    if (!part.empty() && std::filesystem::path(part).filename() != "libwhyrss.so") libraries.push_back(std::move(part));
  if (libraries.empty())
    unsetenv("LD_PRELOAD");
  else
    setenv("LD_PRELOAD", join(libraries, ":").c_str(), 1);
  for (const char* name : {"WHYRSS_OUTPUT", "WHYRSS_SESSION", "WHYRSS_OPTS"}) unsetenv(name);
}

[[noreturn]] void exec_bare(const RunPlan& plan) {
  prepare_streams(plan);
  apply_settings(plan);
  preload_alone(plan.library);
  std::vector<std::string> words = plan.command;
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execvp(arguments.front(), arguments.data());
  say(fmt::format("cannot run {}: {}", plan.command.front(), std::strerror(errno)));
  _exit(kNotFound);
}

// Direct children; orphans of a run are among them.
std::vector<pid_t> children() {
  std::vector<pid_t> pids;
  const auto text = read_file(fmt::format("/proc/self/task/{}/children", gettid()));
  if (!text) return pids;
  std::string_view rest = *text;
  for (std::string_view word = take_word(rest); !word.empty(); word = take_word(rest))
    if (const auto pid = parse_number<pid_t>(word)) pids.push_back(*pid);
  return pids;
}

// The collector is our own program, and ends by itself once the run has.
bool is_ours(pid_t pid) {
  const std::string program = read_link("/proc/self/exe");
  return !program.empty() && read_link(fmt::format("/proc/{}/exe", pid)) == program;
}

bool reap_ended() {
  while (true) {
    const pid_t pid = waitpid(-1, nullptr, WNOHANG);
    if (pid < 0 && errno == ECHILD) return true;
    if (pid <= 0) return false;
  }
}

// What it throws must not unwind into its copy of the parent, which would remove the parent's files.
[[noreturn]] void run_as_child(const std::function<void()>& child) noexcept {
  child();
  _exit(kCannotRecord);
}

}  // namespace

std::string describe_end(int status) {
  if (WIFSIGNALED(status)) {
    const char* name = sigabbrev_np(WTERMSIG(status));
    return name != nullptr ? fmt::format("killed by SIG{}", name) : fmt::format("killed by {}", WTERMSIG(status));
  }
  return WEXITSTATUS(status) == 0 ? "" : fmt::format("exit status {}", WEXITSTATUS(status));
}

Runner::Runner() {
  sigemptyset(&held_);
  for (const int number : kEnding) sigaddset(&held_, number);
  sigaddset(&held_, SIGCHLD);
  std::signal(SIGCHLD, SIG_DFL);  // else no child could be waited for
  sigprocmask(SIG_BLOCK, &held_, &before_);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
}

Runner::~Runner() {
  end_others();
  prctl(PR_SET_CHILD_SUBREAPER, 0);
  // What came meanwhile has been answered by interrupted(), or is no longer of interest.
  constexpr timespec kNow{.tv_sec = 0, .tv_nsec = 0};
  while (sigtimedwait(&held_, nullptr, &kNow) > 0) {
  }
  sigprocmask(SIG_SETMASK, &before_, nullptr);
}

pid_t Runner::start(const std::function<void()>& child) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  sigprocmask(SIG_SETMASK, &before_, nullptr);
  run_as_child(child);
}

// Waits for `pid`; a signal that ends the job is passed on to it, unless the terminal has done so already.
int Runner::wait_for(pid_t pid, rusage& usage) {
  std::int64_t deadline_ns = 0;
  while (true) {
    int status = 0;
    const pid_t ended = wait4(pid, &status, WNOHANG, &usage);
    if (ended == pid) return status;
    if (ended < 0 && errno != EINTR) return W_EXITCODE(kCannotRecord, 0);
    siginfo_t info{};
    // Checks again now and then: SIGCHLD of another child may stand for this one's.
    constexpr timespec kTurn{.tv_sec = 0, .tv_nsec = 200'000'000};
    const int number = sigtimedwait(&held_, &info, &kTurn);
    if (number > 0 && number != SIGCHLD) {
      if (signal_ == 0) deadline_ns = monotonic_ns() + kPatienceNs;
      signal_ = number;
      if (info.si_code == SI_USER || info.si_code == SI_QUEUE || info.si_code == SI_TKILL) kill(pid, number);
    }
    if (deadline_ns == 0 || monotonic_ns() < deadline_ns) continue;
    // A recording's own process would leave the command behind: end that first, which is then our child.
    kill(pid, SIGKILL);
    deadline_ns = monotonic_ns() + kPatienceNs;
  }
}

// Ends what a run has left. How many it were, the collector not counted.
std::size_t Runner::end_others() {
  std::set<pid_t> ended_by_us;
  const std::int64_t began_ns = monotonic_ns();
  while (!reap_ended()) {
    const std::int64_t gone_ns = monotonic_ns() - began_ns;
    if (gone_ns > kGiveUpNs) break;
    for (const pid_t pid : children()) {
      const bool ours = is_ours(pid);
      const std::int64_t patience_ns = ours ? kCollectorNs : signal_ != 0 ? 0 : kLeftoverNs;
      if (gone_ns < patience_ns) continue;
      kill(pid, SIGKILL);
      if (!ours) ended_by_us.insert(pid);
    }
    constexpr timespec kTurn{.tv_sec = 0, .tv_nsec = 10'000'000};
    sigset_t ended;
    sigemptyset(&ended);
    sigaddset(&ended, SIGCHLD);
    sigtimedwait(&ended, nullptr, &kTurn);
  }
  return ended_by_us.size();
}

Result<RunResult> Runner::run(const RunPlan& plan, const std::function<void()>& child) {
  const std::int64_t began_ns = monotonic_ns();
  const pid_t pid = start(child);
  if (pid < 0) return system_error("cannot start", plan.command.front());
  RunResult result;
  result.status = wait_for(pid, result.usage);
  result.wall_s = static_cast<double>(monotonic_ns() - began_ns) / 1e9;
  result.left_running = end_others();
  return result;
}

Result<RunResult> Runner::run_bare(const RunPlan& plan) {
  return run(plan, [&] { exec_bare(plan); });
}

Result<RunResult> Runner::run_recorded(const RunPlan& plan, const std::function<int()>& record) {
  return run(plan, [&] {
    prepare_streams(plan);
    apply_settings(plan);
    _exit(record());
  });
}

int Runner::run_aside(const std::function<int()>& work) {
  const pid_t pid = start([&] { _exit(work()); });
  if (pid < 0) return -1;
  rusage usage{};
  const int status = wait_for(pid, usage);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int Runner::interrupted() {
  sigset_t ending = held_;
  sigdelset(&ending, SIGCHLD);
  constexpr timespec kNow{.tv_sec = 0, .tv_nsec = 0};
  if (const int number = sigtimedwait(&ending, nullptr, &kNow); number > 0) signal_ = number;
  return signal_;
}

}  // namespace whyrss
