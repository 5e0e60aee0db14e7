#include "cli/record_signals.h"

#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>

namespace whyrss {
namespace {

constexpr std::array kPassed{SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT, SIGTSTP};

std::atomic<pid_t> command_pid{0};
std::atomic<bool> stop_requested{false};

void pass_on(int number, siginfo_t* info, void* /*context*/) {
  const int saved_errno = errno;
  const bool from_a_process = info->si_code == SI_USER || info->si_code == SI_QUEUE || info->si_code == SI_TKILL;
  const pid_t pid = command_pid.load();
  // A signal of the command's own (kill(0, ...)) has reached it as well.
  if (from_a_process && pid > 0 && info->si_pid != pid) kill(pid, number);
  if (number == SIGTSTP) stop_requested = true;
  errno = saved_errno;
}

}  // namespace

sigset_t block_passed_signals() {
  sigset_t passed, before;
  sigemptyset(&passed);
  for (const int number : kPassed) sigaddset(&passed, number);
  sigprocmask(SIG_BLOCK, &passed, &before);
  return before;
}

void pass_signals_to(pid_t command, const sigset_t& mask) {
  command_pid = command;
  struct sigaction action {};
  action.sa_sigaction = pass_on;
  action.sa_flags = SA_SIGINFO;  // no SA_RESTART: the wait has to check stop_requested
  sigfillset(&action.sa_mask);
  for (const int number : kPassed) sigaction(number, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);  // a closed stderr must not end record before the command
  sigprocmask(SIG_SETMASK, &mask, nullptr);
}

void stop_passing_signals() { command_pid = 0; }

bool take_stop_request() { return stop_requested.exchange(false); }

int die_by(int signal) {
  const rlimit no_core{.rlim_cur = 0, .rlim_max = 0};
  setrlimit(RLIMIT_CORE, &no_core);
  std::signal(signal, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal);
  sigprocmask(SIG_UNBLOCK, &only, nullptr);
  raise(signal);
  return 128 + signal;
}

}  // namespace whyrss
