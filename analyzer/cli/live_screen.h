// A text that is shown again and again: on a terminal in place of the one before, on its alternate screen, so that what
// stood there before comes back at the end; elsewhere one below the other.
#pragma once

#include <cstddef>
#include <string>

namespace whyrss {

// One at a time. While it lives, SIGINT, SIGTERM, SIGHUP and SIGQUIT end wait(). In the background nothing is drawn or
// read.
class LiveScreen {
 public:
  enum class Event {
    none,
    again,  // it is to be shown anew: the terminal's size changed, or the user pressed the space bar
    quit,   // the user pressed q
    ended,  // SIGCHLD, with Signals::wait_for_child
    interrupted,
  };

  // end_at_once: the second one of those signals ends the process, which gives the terminal back before.
  enum class Signals { end_at_once, wait_for_child };

  explicit LiveScreen(Signals signals = Signals::end_at_once);
  LiveScreen(const LiveScreen&) = delete;
  LiveScreen& operator=(const LiveScreen&) = delete;
  ~LiveScreen() { close(); }

  // Lines beyond the terminal's height are left out, and counted in the last one. `footer`: on a terminal, below.
  // False, with errno: it cannot be written.
  bool show(const std::string& text, const std::string& footer);
  // Of a text that fits the terminal; 0: any.
  [[nodiscard]] std::size_t rows() const;
  // Until something happens, at most so long.
  Event wait(double seconds);
  // That ended wait(); 0: none.
  [[nodiscard]] static int signal_number();
  // By a process, not by the terminal, which sends it to all of its group.
  [[nodiscard]] static bool is_sent();
  static void forget_signal();
  // Gives the terminal back for good: what is shown from now on stays there. Signals still come to wait().
  void close();

 private:
  void open();
  void leave();
  void stop_here();
  Event key();

  bool watches_child_, is_terminal_, has_keys_;
  bool is_open_ = false, is_closed_ = false, is_first_ = true;
};

}  // namespace whyrss
