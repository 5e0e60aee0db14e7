#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "cli/interruption.h"
#include "support/file.h"

namespace whyrss {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kFirst = 1s, kBetween = 200ms;
constexpr std::string_view kClear = "\r\x1b[K";

bool is_terminal() {
  const char* terminal = std::getenv("TERM");
  return isatty(STDERR_FILENO) == 1 && terminal != nullptr && std::strcmp(terminal, "dumb") != 0;
}

// It may well take half as long again.
std::string left_text(double seconds) {
  if (seconds < 1.5) return "about a second left";
  if (seconds < 90) return fmt::format("about {:.0f} s left", seconds);
  return fmt::format("about {:.0f} minutes left", seconds / 60);
}

}  // namespace

Progress::Progress() : is_terminal_(is_terminal()) {}

bool Progress::is_due() const {
  if (!is_terminal_) return false;
  const auto now = Clock::now();
  return now - began_ >= kFirst && now - shown_ >= kBetween;
}

void Progress::show(std::string_view text) {
  clear_line_when_interrupted(true);
  write_fully(STDERR_FILENO, fmt::format("{}whyrss: {}", kClear, text));
  is_shown_ = true;
  shown_ = Clock::now();
}

void Progress::at(std::string_view doing, double done) {
  if (!is_due()) return;
  const double elapsed_s = std::chrono::duration<double>(Clock::now() - began_).count();
  done = std::clamp(done, 0.01, 1.0);
  show(fmt::format("{}: {:.0f} %, {}", doing, done * 100, left_text(elapsed_s / done * (1 - done))));
}

void Progress::at(std::string_view doing) {
  if (is_due()) show(fmt::format("{} ...", doing));
}

void Progress::clear() {
  if (!is_shown_) return;
  write_fully(STDERR_FILENO, kClear);
  clear_line_when_interrupted(false);
  is_shown_ = false;
}

std::function<void(double)> shown_by(Progress& progress) {
  return [&progress](double done) { progress.at("reading the recording", done); };
}

}  // namespace whyrss
