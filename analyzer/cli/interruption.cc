#include "cli/interruption.h"

#include <unistd.h>

#include <array>
#include <climits>
#include <csignal>
#include <cstring>

namespace whyrss {
namespace {

constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP};

// Read by the handler; "" is none.
std::array<char, PATH_MAX> g_path{};
volatile std::sig_atomic_t g_line = 0;

void clean_and_die(int number) {
  if (g_path[0] != '\0') unlink(g_path.data());
  constexpr char kClear[] = "\r\x1b[K";
  if (g_line != 0) static_cast<void>(!write(STDERR_FILENO, kClear, sizeof kClear - 1));
  raise(number);  // the action is the default again
}

void install() {
  static bool is_installed = false;
  if (is_installed) return;
  is_installed = true;
  for (const int number : kSignals) {
    struct sigaction action {};
    if (sigaction(number, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) continue;
    action.sa_handler = clean_and_die;
    action.sa_flags = SA_RESETHAND | SA_NODEFER;
    sigaction(number, &action, nullptr);
  }
}

}  // namespace

void remove_when_interrupted(const std::string& path) {
  if (path.size() >= g_path.size()) return;
  sigset_t signals, before;
  sigemptyset(&signals);
  for (const int number : kSignals) sigaddset(&signals, number);
  pthread_sigmask(SIG_BLOCK, &signals, &before);
  std::memcpy(g_path.data(), path.c_str(), path.size() + 1);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  install();
}

void clear_line_when_interrupted(bool is_there) {
  g_line = is_there ? 1 : 0;
  install();
}

}  // namespace whyrss
