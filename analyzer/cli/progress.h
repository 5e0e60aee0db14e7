// A line on the terminal behind stderr, for what takes over a second: what is done, and how long it will take.
#pragma once

#include <chrono>
#include <functional>
#include <string_view>

namespace whyrss {

class Progress {
 public:
  Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { clear(); }

  // `doing` as "reading the recording"; `done` of it, from 0 to 1. Cheap enough for some thousand calls.
  void at(std::string_view doing, double done);
  // The same where it is not known how long it takes.
  void at(std::string_view doing);
  // Takes the line away: something else is about to be printed.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  [[nodiscard]] bool is_due() const;
  void show(std::string_view text);

  bool is_terminal_;
  bool is_shown_ = false;
  Clock::time_point began_ = Clock::now(), shown_{};
};

// For who reads a recording, as LoadSettings has it; `progress` outlives it.
std::function<void(double)> shown_by(Progress& progress);

}  // namespace whyrss
