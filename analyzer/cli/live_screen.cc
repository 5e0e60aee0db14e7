#include "cli/live_screen.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <utility>
#include <vector>

#include "cli/terminal.h"
#include "report/wording/plural.h"
#include "support/file.h"
#include "support/text.h"

namespace whyrss {
namespace {

// xterm's private modes 1049 (alternate screen) and 25 (cursor), which all terminals of today have.
constexpr std::string_view kEnter = "\033[?1049h\033[?25l", kLeave = "\033[?25h\033[?1049l";
constexpr std::string_view kHome = "\033[H", kEndOfLine = "\033[K", kEndOfScreen = "\033[J";

volatile std::sig_atomic_t interrupted_by = 0, sent_by_process = 0, stop_wanted = 0, size_changed = 0, child_ended = 0;
int wake_fds[2] = {-1, -1};  // as long as handlers may run: to the end of the process
bool keys_are_read = false, screen_is_taken = false, second_one_ends = true;
termios line_mode{};  // as it was found

void wake() {
  const int saved_errno = errno;
  const ssize_t written = write(wake_fds[1], "", 1);
  static_cast<void>(written);  // a full pipe wakes as well
  errno = saved_errno;
}

bool write_all(std::string_view text) { return write_fully(STDOUT_FILENO, text); }

// In the background the kernel stops who writes a terminal's mode, and its whole group.
bool is_foreground() { return tcgetpgrp(STDOUT_FILENO) == getpgrp(); }

void give_back_terminal() {
  const bool is_ours = is_foreground();
  if (keys_are_read && is_ours) tcsetattr(STDIN_FILENO, TCSANOW, &line_mode);
  if (screen_is_taken && is_ours) write_all(kLeave);
  keys_are_read = screen_is_taken = false;
}

void on_interrupt(int number, siginfo_t* info, void*) {
  if (interrupted_by != 0 && second_one_ends) {  // it takes too long
    give_back_terminal();
    std::signal(number, SIG_DFL);
    std::raise(number);
  }
  interrupted_by = number;
  sent_by_process = info->si_code <= 0 ? 1 : 0;
  wake();
}

void on_stop(int, siginfo_t*, void*) {
  stop_wanted = 1;
  wake();
}

void on_size(int, siginfo_t*, void*) {
  size_changed = 1;
  wake();
}

void on_child(int, siginfo_t*, void*) {
  child_ended = 1;
  wake();
}

void handle(int number, void (*handler)(int, siginfo_t*, void*)) {
  struct sigaction before {};
  sigaction(number, nullptr, &before);
  if (before.sa_handler == SIG_IGN) return;
  struct sigaction action {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | SA_RESTART | SA_NODEFER;
  sigaction(number, &action, nullptr);
}

std::size_t screen_rows() {
  constexpr std::size_t kUsual = 24;
  const std::size_t rows = terminal_rows(STDOUT_FILENO);
  return rows > 1 ? rows : kUsual;
}

}  // namespace

LiveScreen::LiveScreen(Signals signals)
    : watches_child_(signals == Signals::wait_for_child),
      is_terminal_(takes_escapes(STDOUT_FILENO)),
      has_keys_(is_terminal_ && isatty(STDIN_FILENO) == 1) {
  second_one_ends = !watches_child_;
  if (wake_fds[0] < 0 && pipe2(wake_fds, O_CLOEXEC | O_NONBLOCK) != 0) wake_fds[0] = wake_fds[1] = -1;
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) handle(number, on_interrupt);
  std::signal(SIGPIPE, SIG_IGN);  // show() tells
  if (watches_child_) handle(SIGCHLD, on_child);
  if (!is_terminal_) return;
  handle(SIGTSTP, on_stop);
  handle(SIGWINCH, on_size);
}

void LiveScreen::open() {
  if (has_keys_ && tcgetattr(STDIN_FILENO, &line_mode) == 0) {
    termios keys = line_mode;
    keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    keys_are_read = tcsetattr(STDIN_FILENO, TCSANOW, &keys) == 0;
  }
  write_all(kEnter);
  screen_is_taken = is_open_ = true;
}

void LiveScreen::leave() {
  if (std::exchange(is_open_, false)) give_back_terminal();
}

void LiveScreen::close() {
  leave();
  is_closed_ = true;
}

// Ctrl-Z: the shell gets its screen. The next show() takes it again, if this comes back to the foreground.
void LiveScreen::stop_here() {
  leave();
  std::raise(SIGSTOP);
}

int LiveScreen::signal_number() { return interrupted_by; }
bool LiveScreen::is_sent() { return sent_by_process != 0; }

void LiveScreen::forget_signal() { interrupted_by = 0; }

bool LiveScreen::show(const std::string& text, const std::string& footer) {
  if (!is_terminal_ || is_closed_)
    return write_all(fmt::format("{}{}", std::exchange(is_first_, false) ? "" : "\n", text));
  if (!is_foreground()) return true;
  if (!is_open_) open();
  std::vector<std::string> lines = split(text, '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  const std::size_t rows = screen_rows(), room = rows - 1;
  if (lines.size() > room) {
    const std::size_t hidden = lines.size() - room + 1;
    lines.resize(room - 1);
    lines.push_back(fmt::format("({} more: a higher terminal shows them)", counted(hidden, "line")));
  }
  std::string out(kHome);
  for (const std::string& line : lines) out += fmt::format("{}{}\r\n", line, kEndOfLine);
  out += fmt::format("{}\033[{};1H{}{}", kEndOfScreen, rows, footer, kEndOfLine);
  return write_all(out);
}

std::size_t LiveScreen::rows() const { return is_terminal_ && !is_closed_ ? screen_rows() - 1 : 0; }

LiveScreen::Event LiveScreen::key() {
  char letter = 0;
  if (read(STDIN_FILENO, &letter, 1) != 1) {
    has_keys_ = false;  // the terminal is gone
    return Event::none;
  }
  if (letter == 'q' || letter == 'Q') return Event::quit;
  return letter == ' ' ? Event::again : Event::none;
}

LiveScreen::Event LiveScreen::wait(double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + std::chrono::duration<double>(seconds);
  while (true) {
    if (interrupted_by != 0) return Event::interrupted;
    if (std::exchange(child_ended, 0) != 0) return Event::ended;
    if (std::exchange(stop_wanted, 0) != 0) {
      stop_here();
      return Event::again;
    }
    if (std::exchange(size_changed, 0) != 0 && is_open_) return Event::again;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    if (left <= 0) return Event::none;
    pollfd entries[2] = {
        {.fd = wake_fds[0], .events = POLLIN, .revents = 0},
        {.fd = is_open_ && has_keys_ && is_foreground() ? STDIN_FILENO : -1, .events = POLLIN, .revents = 0}};
    if (poll(entries, 2, static_cast<int>(std::min<std::int64_t>(left, 3'600'000))) <= 0) continue;
    char bytes[64];
    while (entries[0].revents != 0 && read(wake_fds[0], bytes, sizeof bytes) > 0) continue;
    if (entries[1].revents == 0) continue;
    if (const Event event = key(); event != Event::none) return event;
  }
}

}  // namespace whyrss
