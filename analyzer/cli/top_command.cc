#include "cli/top_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <utility>

#include "cli/complain.h"
#include "cli/exit_status.h"
#include "cli/kernel_watch.h"
#include "cli/live_screen.h"
#include "cli/record_signals.h"
#include "cli/report_command.h"
#include "cli/shell_words.h"
#include "cli/terminal.h"
#include "collect/read/process_presence.h"
#include "collect/start/recording_directory.h"
#include "model/recording_state.h"
#include "recording/recording_folder.h"
#include "report/render/text.h"
#include "report/view/build_view.h"
#include "report/view/interval.h"
#include "report/wording/format.h"
#include "report/wording/plural.h"
#include "report/wording/wrap.h"
#include "support/file.h"
#include "support/last_words.h"
#include "support/text.h"

namespace whyrss {
namespace {

constexpr std::size_t kTopLines = 6;  // of code, and processes with rows of their own
constexpr double kMostShare = 0.2;    // of the time in which a screen may be made
constexpr double kBeginsS = 0.1;      // until a recording that begins is looked for again
constexpr const char* kKeys = "q: quit   space: now";

class Stopwatch {
 public:
  [[nodiscard]] double seconds() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point began_ = Clock::now();
};

// Behind a pipe that has no reader any more it ends as other programs do.
int cannot_show(int why) {
  if (why == EPIPE) return die_by(SIGPIPE);
  return complain(fmt::format("cannot write to stdout: {}", std::strerror(why)), kFailed);
}

// When the next screen is due: reading a long recording takes longer than the interval.
double pause_s(const TopOptions& options, double took_s) {
  return std::max(options.interval_s - took_s, took_s * (1 / kMostShare - 1));
}

bool is_last(const TopOptions& options, std::size_t shown) { return options.count && shown >= *options.count; }

// What a recording says so far.
struct Shown {
  std::string text;
  bool goes_on = false;
};

Result<Shown> show_recording(const std::string& directory, std::optional<int> pid, std::size_t rows) {
  const Stopwatch watch;
  Result<RecordingAccount> loaded = load_with_names(directory);
  if (!loaded) return Error{loaded.error()};
  const RecordingAccount& recording = *loaded;
  if (recording.processes.empty()) return Shown{"nothing is recorded yet\n", !recording.info.complete};
  if (pid && *pid == recording.processes.front().pid) pid.reset();  // with its whole tree
  View view = build_view(recording, whole_life(recording), pid);
  view.is_live = true;
  TextStyle style{.top = kTopLines};
  style.colour = wants_colour(STDOUT_FILENO);
  style.columns = text_columns(STDOUT_FILENO);
  const std::string state = recording.info.complete ? "complete" : recording.info.incomplete_why;
  const std::string head = fmt::format(
      "{}   {} s, {}, {}; read in {:.1f} s", shell_word(directory), static_cast<long>(recording.info.duration_s),
      counted(recording.processes.size(), "process"), printable(state), watch.seconds());
  const std::string top = wrapped(head, "", "  ", style.columns) + "\n";
  const auto used = static_cast<std::size_t>(std::ranges::count(top, '\n'));
  return Shown{top + render_live(view, find_verdicts(view), style, rows > used ? rows - used : rows),
               !recording.info.complete && recording.info.incomplete_why == kStillRunning};
}

// What to end with, if the user ends it.
std::optional<int> wait_for_next(LiveScreen& screen, double seconds) {
  const LiveScreen::Event event = screen.wait(seconds);
  if (event == LiveScreen::Event::quit) return kDone;
  if (event != LiveScreen::Event::interrupted) return std::nullopt;
  screen.close();
  return die_by(LiveScreen::signal_number());
}

int watch_recording(const TopOptions& options, const std::string& directory, std::optional<int> pid) {
  LiveScreen screen;
  for (std::size_t shown = 0;;) {
    const Stopwatch watch;
    const auto now = show_recording(directory, pid, screen.rows());
    if (!now) {
      screen.close();
      return complain(now.error(), kFailed);
    }
    if (!now->goes_on) screen.close();  // so that it stays there
    if (!screen.show(now->text, kKeys)) return cannot_show(errno);
    if (is_last(options, ++shown) || !now->goes_on) return kDone;
    if (const auto end = wait_for_next(screen, pause_s(options, watch.seconds()))) return *end;
  }
}

std::string kernel_text(const KernelWatch& watch, double since_s) {
  const std::size_t columns = text_columns(STDOUT_FILENO);
  std::string text =
      wrapped(fmt::format("{}{}, MiB by cause as the kernel tells them, growth in {:.0f} s",
                          counted(watch.process_count(), "process"),
                          watch.ended_count() == 0 ? "" : fmt::format(" ({} ended)", watch.ended_count()), since_s),
              "", "  ", columns);
  text += watch.table().text(columns);
  for (const std::string& note : watch.notes()) text += wrapped(printable(note), "", "  ", columns);
  return text + wrapped("lines of code, and what of the heap is live: whyrss top -- CMD", "", "  ", columns);
}

int watch_processes(const TopOptions& options, std::vector<pid_t> roots) {
  KernelWatch watch(roots);
  const Stopwatch since;
  LiveScreen screen;
  for (std::size_t shown = 0;;) {
    const Stopwatch reading;
    if (!watch.read()) {
      screen.close();
      if (shown > 0) return kDone;  // all have ended
      return complain(roots.empty() ? std::string("no process can be read")
                                    : fmt::format("no process {}, or it has ended", roots.front()),
                      kFailed);
    }
    const bool is_end = is_last(options, ++shown);
    if (is_end) screen.close();
    if (!screen.show(kernel_text(watch, since.seconds()), kKeys)) return cannot_show(errno);
    if (is_end) return kDone;
    if (const auto end = wait_for_next(screen, pause_s(options, reading.seconds()))) return *end;
  }
}

// Where a process is recorded to; "": nowhere that its environment names.
std::string recording_of(pid_t pid) {
  constexpr std::string_view kEntry = "WHYRSS_OUTPUT=";
  const auto environment = read_file(fmt::format("/proc/{}/environ", pid));
  const auto start_ticks = start_ticks_of(pid);
  for (const std::string& entry : split(environment ? *environment : "", '\0')) {
    if (!entry.starts_with(kEntry)) continue;
    const auto folder = open_recording(entry.substr(kEntry.size()));
    const auto processes = folder ? list_processes(*folder) : Result<std::vector<ProcessFolder>>(Error{});
    if (!processes) return "";
    for (const ProcessFolder& process : *processes)
      if (std::cmp_equal(process.pid, pid) && process.start_ticks == start_ticks) return folder->path();
  }
  return "";
}

// A command that is recorded behind the screen: what it writes goes to a file.
class Background {
 public:
  static Result<Background> start(RecordOptions record, const std::string& log);
  bool has_ended() {
    if (!ended_) ended_ = waitpid(pid_, &status_, WNOHANG) != 0;
    return ended_;
  }
  void pass_on(int number) const { kill(pid_, number); }
  // Ends as it did.
  [[nodiscard]] int end_alike() const { return WIFSIGNALED(status_) ? die_by(WTERMSIG(status_)) : exit_status(); }
  [[nodiscard]] int exit_status() const { return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_); }

 private:
  explicit Background(pid_t pid) : pid_(pid) {}

  pid_t pid_;
  bool ended_ = false;
  int status_ = 0;
};

Result<Background> Background::start(RecordOptions record, const std::string& log) {
  const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | (record.force ? O_TRUNC : O_EXCL);
  const Fd out(open(log.c_str(), flags, 0600));
  if (!out) return system_error("cannot write what the command prints to", log);
  const Fd in(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const pid_t pid = fork();
  if (pid < 0) return system_error("cannot start", "the recording");
  if (pid > 0) {
    std::signal(SIGCHLD, SIG_DFL);  // the command keeps what it was started with
    return Background(pid);
  }
  if (isatty(STDIN_FILENO) == 1) dup2(in.get(), STDIN_FILENO);  // keys are the screen's
  dup2(out.get(), STDOUT_FILENO);
  dup2(out.get(), STDERR_FILENO);
  record.quiet = true;
  _exit(run_record(record));  // or dies as the command did
}

// Where the command could not be started, what `record` said of it.
int say_why_none(const Background& recorded, const std::string& log) {
  if (const auto text = read_file(log)) write_fully(STDERR_FILENO, *text);
  unlink(log.c_str());
  return recorded.exit_status();
}

// The screen until the user closes it, or the command has ended. False: no recording was ever shown.
bool watch(const TopOptions& options, const std::string& directory, const std::string& footer, Background& recorded,
           LiveScreen& screen) {
  for (std::size_t shown = 0; !recorded.has_ended();) {
    const Stopwatch since;
    const auto now = show_recording(directory, std::nullopt, screen.rows());
    const bool goes_on = now && now->goes_on;  // else it has not begun, or has just ended
    if (goes_on && !screen.show(now->text, footer)) {
      say(fmt::format("cannot write to stdout: {}", std::strerror(errno)));
      return true;
    }
    shown += goes_on ? 1 : 0;
    if (is_last(options, shown)) return true;
    const double pause = goes_on ? pause_s(options, since.seconds()) : kBeginsS;
    LiveScreen::Event event = LiveScreen::Event::ended;
    for (const Stopwatch waited; event == LiveScreen::Event::ended && !recorded.has_ended();)
      event = screen.wait(pause - waited.seconds());
    if (event == LiveScreen::Event::quit || event == LiveScreen::Event::interrupted) return true;
    if (recorded.has_ended()) return shown > 0;
  }
  return false;
}

// Signals that a process sends go to the command; those of the terminal it gets by itself.
void wait_for_end(Background& recorded, LiveScreen& screen) {
  constexpr double kUsualS = 1;  // in which most end that are asked to
  const Stopwatch since;
  const double said_after_s = LiveScreen::signal_number() != 0 ? kUsualS : 0;
  for (bool is_said = false; !recorded.has_ended();) {
    if (!is_said && since.seconds() >= said_after_s) {
      say("the command goes on; Ctrl-C interrupts it");
      is_said = true;
    }
    if (screen.wait(kUsualS) != LiveScreen::Event::interrupted) continue;
    if (LiveScreen::is_sent()) recorded.pass_on(LiveScreen::signal_number());
    LiveScreen::forget_signal();
  }
}

int watch_command(const TopOptions& options) {
  RecordOptions record = *options.record;
  const std::string directory = absolute_path(expand_tokens(output_pattern(record), getpid()));
  record.output = without_tokens(directory);
  if (!record.force && access(directory.c_str(), F_OK) == 0)
    return complain(
        fmt::format("{} exists already: choose another with -o, or replace it with -f", shell_word(directory)),
        kCannotRecord);
  const std::string log = directory + ".log";
  auto recorded = Background::start(record, log);
  if (!recorded) return complain(recorded.error(), kCannotRecord);
  LiveScreen screen(LiveScreen::Signals::wait_for_child);
  const std::string footer = fmt::format("{}   what the command prints: {}", kKeys, shell_word(log));
  const bool was_shown = watch(options, directory, footer, *recorded, screen);
  screen.close();
  wait_for_end(*recorded, screen);
  const int status = recorded->exit_status();
  if (!was_shown && status >= kCannotRecord && status <= kNotFound) return say_why_none(*recorded, log);
  write_fully(STDERR_FILENO, short_verdict(directory));
  say(fmt::format("what it printed: {}", shell_word(log)));
  say(fmt::format("next: whyrss report {}", shell_word(directory)));
  return recorded->end_alike();
}

std::optional<pid_t> pid_of(const std::string& text) {
  const auto pid = parse_number<pid_t>(text);
  return pid && *pid > 0 ? pid : std::nullopt;
}

}  // namespace

int run_top(const TopOptions& options) {
  if (options.record) return watch_command(options);
  std::vector<pid_t> pids;
  for (const std::string& target : options.targets)
    if (const auto pid = pid_of(target)) pids.push_back(*pid);
  if (pids.size() == options.targets.size()) {
    const std::string directory = pids.size() == 1 ? recording_of(pids.front()) : "";
    return directory.empty() ? watch_processes(options, pids) : watch_recording(options, directory, pids.front());
  }
  const std::string& target = options.targets.front();
  const bool is_there = access(target.c_str(), F_OK) == 0;
  if (options.targets.size() > 1 && (is_there || pid_of(target)))
    return complain("top: give process ids, or one recording", kUsage);
  if (!is_there)
    return complain(fmt::format("{} is neither a process id nor a recording; to record and watch a program: whyrss top "
                                "-- {}",
                                shell_word(target), shell_command(options.targets)),
                    kFailed);
  return watch_recording(options, target, std::nullopt);
}

}  // namespace whyrss
