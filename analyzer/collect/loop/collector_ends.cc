// How processes end: what is asked and written then, and what becomes of their cgroup.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "collect/cgroup/memory_group.h"
#include "collect/loop/collector.h"
#include "procfs/oom_log.h"
#include "support/clock.h"

namespace whyrss {
namespace {

constexpr std::int64_t kWordsNs = 20'000'000;
constexpr std::int64_t kTargetEndNs = 200'000'000;
constexpr std::int64_t kRemoveNs = 1'000'000'000;
constexpr useconds_t kEndAgainUs = 2000;
constexpr std::size_t kMostLines = 10'000;

}  // namespace

// The signal is sent between the two lines of the log: the second may come a moment later.
std::vector<KernelLine> Collector::oom_log_of(pid_t pid, bool was_killed) {
  const std::int64_t deadline_ns = monotonic_ns() + kWordsNs;
  std::vector<KernelLine> words;
  while (true) {
    for (KernelLine& line : kernel_log_.read_new())
      if (oom_lines_.size() < kMostLines && parse_oom_line(line.text).kind != OomLine::Kind::none)
        oom_lines_.push_back(std::move(line));
    words.clear();
    std::vector<KernelLine> of_group;  // what its cgroup held stands before the line that names the process
    bool chosen = false, killed = false;
    for (const KernelLine& line : oom_lines_) {
      const OomLine parsed = parse_oom_line(line.text);
      if (parsed.kind == OomLine::Kind::usage) of_group.clear();
      if (parsed.pid == 0) {
        of_group.push_back(line);
        continue;
      }
      if (parsed.pid == pid) {
        (parsed.kind == OomLine::Kind::chosen ? chosen : killed) = true;
        words.insert(words.end(), of_group.begin(), of_group.end());
        words.push_back(line);
      }
      of_group.clear();
    }
    if (!was_killed || !chosen || killed || monotonic_ns() > deadline_ns) return words;
    usleep(kEndAgainUs);
  }
}

// record says a moment later how large the target ever was.
void Collector::wait_for_target_end() {
  const std::int64_t deadline_ns = monotonic_ns() + kTargetEndNs;
  while (setup_.control_fd >= 0 && !control_.at_end() && !setup_.manifest.exit_code && !setup_.manifest.exit_signal) {
    const std::int64_t left_ns = deadline_ns - monotonic_ns();
    if (left_ns <= 0) return;
    pollfd entry{.fd = setup_.control_fd, .events = POLLIN, .revents = 0};
    ::poll(&entry, 1, static_cast<int>(left_ns / 1'000'000) + 1);
    read_control();
  }
}

void Collector::write_end(Followed& followed) {
  ProcessFollow& process = *followed.process;
  const std::string signal = followed.exit_status ? std::string() : process.end_signal();
  std::vector<KernelLine> words;
  if (!followed.exit_status && process.pid() > 0) words = oom_log_of(process.pid(), signal == "SIGKILL");
  if (process.pid() == setup_.target && !followed.exit_status) {
    wait_for_target_end();
    process.note_max_rss(target_max_rss_kib_.value_or(0));
  }
  process.write_ended(followed.exit_status ? "exit" : "gone", followed.exit_status, signal, words);
  if (process.pid() != setup_.target) return;
  target_status_ = followed.exit_status;
  target_signal_ = signal;
  // record's word comes a moment later, unless there is none.
  if (setup_.control_fd < 0 || control_.at_end()) report_seen_end();
}

void Collector::report_seen_end() {
  Manifest& manifest = setup_.manifest;
  if (manifest.exit_code || manifest.exit_signal) return;
  manifest.exit_code = target_status_;
  if (!target_signal_.empty()) manifest.exit_signal = target_signal_;
}

// Of a group in which others live on, one of them tells.
void Collector::hand_cgroup_on(const Followed& ended) {
  for (auto& [key, other] : followed_) {
    if (&other == &ended || other.has_ended || other.process->cgroup()) continue;
    other.process->take_cgroup(*ended.process->cgroup());
    return;
  }
}

// A limit may be so small that no process was there to be walked: what the group counted is reported in any case.
void Collector::end_memory_group() {
  if (setup_.memory_group.empty()) return;
  if (const auto group = cgroup_at(setup_.memory_group)) {
    const CgroupFigures figures = read_figures(*group);
    const auto kills = figures.find("oom_kills");
    setup_.manifest.group_limit_bytes = group->limit_bytes;
    if (kills != figures.end()) setup_.manifest.group_kills = kills->second;
  }
  if (!setup_.removes_group) return;
  const std::int64_t deadline_ns = monotonic_ns() + kRemoveNs;
  while (!remove_group(setup_.memory_group)) {
    if (errno == EBUSY && monotonic_ns() < deadline_ns) {
      usleep(kEndAgainUs);
      continue;
    }
    log(fmt::format("cannot remove the memory cgroup {}: {}", setup_.memory_group, std::strerror(errno)));
    return;
  }
}

}  // namespace whyrss
