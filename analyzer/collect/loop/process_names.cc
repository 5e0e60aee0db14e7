#include "collect/loop/process_names.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <filesystem>

#include "collect/read/process_presence.h"
#include "support/file.h"
#include "support/text.h"

namespace whyrss {
namespace {

constexpr std::int64_t kSearchGapNs = 100'000'000;

// The pid in its innermost namespace: the last word of status' NSpid. `is_nested`: it is another one than here.
std::optional<std::uint32_t> innermost_pid(pid_t pid, bool* is_nested = nullptr) {
  const auto status = read_file(fmt::format("/proc/{}/status", pid));
  if (!status) return std::nullopt;
  for (std::string_view rest = *status; !rest.empty();) {
    std::string_view line = take_until(rest, '\n');
    if (take_until(line, ':') != "NSpid") continue;
    std::string_view last;
    int words = 0;
    for (std::string_view word = take_word(line); !word.empty(); word = take_word(line), ++words) last = word;
    if (is_nested != nullptr) *is_nested = words > 1;
    return parse_number<std::uint32_t>(last);
  }
  return std::nullopt;
}

// Then nothing is known of the process, while others may be hidden for good (hidepid).
bool ran_out(int error) { return error == EMFILE || error == ENFILE || error == ENOMEM; }

std::uint64_t ticks_since_boot() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  const auto ticks_per_s = static_cast<std::uint64_t>(sysconf(_SC_CLK_TCK));
  return static_cast<std::uint64_t>(now.tv_sec) * ticks_per_s +
         static_cast<std::uint64_t>(now.tv_nsec) * ticks_per_s / 1'000'000'000;
}

}  // namespace

ProcessKey ProcessNames::own_key(ProcessKey key) const {
  const auto nested = nested_.find(key);
  return nested == nested_.end() ? key : nested->second;
}

std::set<ProcessKey> ProcessNames::names_of(ProcessKey own) const {
  std::set<ProcessKey> names{own};
  for (const auto& [name, meant] : nested_)
    if (meant == own) names.insert(name);
  return names;
}

void ProcessNames::search(std::int64_t now_ns) {
  const std::uint64_t begun_ticks = ticks_since_boot();
  searched_ns_ = now_ns;
  living_.clear();
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const auto pid = parse_number<pid_t>(entry.path().filename().string());
    const auto ticks = pid ? start_ticks_of(*pid) : std::nullopt;
    if (ticks) living_.emplace(*ticks, *pid);
    if (pid && !ticks && ran_out(errno)) error = std::make_error_code(std::errc::too_many_files_open);
    if (error) break;
  }
  searched_ticks_ = error ? 0 : begun_ticks;  // a search that was cut short may have missed any process
}

// Of those that call themselves so: one that had no /proc of its own could not read when it was born.
std::optional<ProcessKey> ProcessNames::youngest_nested(std::uint32_t own_pid) const {
  for (auto at = living_.rbegin(); at != living_.rend(); ++at) {
    bool is_nested = false;
    if (innermost_pid(at->second, &is_nested) == own_pid && is_nested)
      return ProcessKey{.pid = static_cast<std::uint32_t>(at->second), .start_ticks = at->first};
  }
  return std::nullopt;
}

// One that is not nested, and could not read when it was born either: its /proc is out of its reach (chroot), or it has
// no descriptor left to open it with.
std::optional<ProcessKey> ProcessNames::traced_here(pid_t pid) const {
  bool is_nested = false;
  const auto ticks = start_ticks_of(pid);
  if (!ticks || !is_traced_ || !innermost_pid(pid, &is_nested) || is_nested || !is_traced_(pid)) return std::nullopt;
  return ProcessKey{.pid = static_cast<std::uint32_t>(pid), .start_ticks = *ticks};
}

std::optional<pid_t> ProcessNames::pid_of(ProcessKey key, std::int64_t now_ns, bool must_know) {
  const ProcessKey own = own_key(key);
  const auto pid = static_cast<pid_t>(own.pid);
  const Presence presence = presence_of(pid, own.start_ticks);
  if (presence == Presence::there) return pid;
  if (presence == Presence::unknown) return std::nullopt;
  if (own != key || ended_.contains(key)) return 0;
  // The last search found each living process that was born before it.
  if (key.start_ticks >= searched_ticks_ || key.start_ticks == 0) {
    if (!must_know && now_ns - searched_ns_ < kSearchGapNs) return std::nullopt;
    search(now_ns);
    if (searched_ticks_ == 0) return std::nullopt;
  }
  if (key.start_ticks == 0) {
    const auto nested = youngest_nested(key.pid);
    if (const auto meant = nested ? nested : traced_here(pid)) {
      nested_[key] = *meant;
      return static_cast<pid_t>(meant->pid);
    }
  }
  const auto [first, last] = living_.equal_range(key.start_ticks);
  for (auto found = first; found != last; ++found) {
    const pid_t nested = found->second;
    const Presence of_nested = presence_of(nested, key.start_ticks);
    const auto innermost = innermost_pid(nested);
    if (of_nested == Presence::unknown || (of_nested == Presence::there && !innermost)) return std::nullopt;
    if (of_nested == Presence::gone || innermost != key.pid) continue;
    nested_[key] = {.pid = static_cast<std::uint32_t>(nested), .start_ticks = key.start_ticks};
    return nested;
  }
  ended_.insert(key);
  return 0;
}

}  // namespace whyrss
