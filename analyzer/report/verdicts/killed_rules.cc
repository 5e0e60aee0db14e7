#include "report/verdicts/killed_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "report/verdicts/last_minute.h"
#include "report/verdicts/limit_rules.h"
#include "report/view/verdict_thresholds.h"
#include "report/wording/format.h"

namespace whyrss {
namespace {

constexpr const char* kMoreRoom = "Give it a higher limit: the program and its libraries alone need more.";

const ProcessAccount* find_process(const RecordingAccount& recording, int pid) {
  const auto found = std::ranges::find(recording.processes, pid, &ProcessAccount::pid);
  return found == recording.processes.end() ? nullptr : &*found;
}

// What is known of a kill: when and whose.
struct Death {
  int pid = 0;
  double time_s = 0, seen_s = 0;
  bool at_limit = true;
  std::optional<std::int64_t> limit_bytes;
  const CgroupReading* group = nullptr;  // at that moment; null: not known
};

Death death_of(const RecordingAccount& recording) {
  Death death;
  death.pid = recording.processes.front().pid;
  death.time_s = death.seen_s = recording.processes.front().ended_s.value_or(recording.info.duration_s);
  if (!recording.info.oom_kills.empty()) {
    const OomKill& kill = recording.info.oom_kills.front();
    death.pid = kill.pid;
    death.at_limit = kill.at_limit;
    // The log's clock differs a little, and the end is seen a little later.
    const ProcessAccount* victim = find_process(recording, kill.pid);
    death.time_s = victim != nullptr && victim->ended_s ? std::min(kill.time_s, *victim->ended_s) : kill.time_s;
    death.seen_s = victim != nullptr ? victim->ended_s.value_or(death.time_s) : death.time_s;
  }
  if (recording.info.cgroup && death.at_limit) death.limit_bytes = recording.info.cgroup->limit_bytes;
  for (const OomKill& kill : recording.info.oom_kills)
    if (death.group == nullptr && kill.group_reading && death.limit_bytes &&
        kill.group_limit_bytes == death.limit_bytes)
      death.group = &*kill.group_reading;
  return death;
}

// Whether the report is about a time before. A killed collector has recorded nothing of the last moments.
bool is_about_before(const View& view, double end_s) {
  return view.interval.to_s < view.recording->info.duration_s && end_s > view.interval.to_s + 1;
}

std::string place_text(const Death& death) {
  if (!death.at_limit) return "because the machine had no memory left";
  return death.limit_bytes ? fmt::format("at the memory limit of {}", size_text(*death.limit_bytes))
                           : std::string("at the memory limit of its group");
}

// ", held most by 59 MiB live heap (a.py:4 in f)", as far as is known. More than the limit cannot have been held:
// those were processes that came and went.
// Less of the limit, or of what all held, is no answer.
constexpr std::int64_t kLeastHeldPart = 10;

std::string held_text(const LastMinute& minute, const char* before, std::optional<std::int64_t> limit_bytes,
                      std::int64_t least_bytes = 0) {
  const Holder* const most = main_holder(minute.held, least_bytes);
  if (most == nullptr || (limit_bytes && most->bytes > *limit_bytes)) return "";
  return fmt::format("{} held most by {}", before, main_holder_text(minute.held, *most));
}

bool log_was_readable(const RecordingInfo& info) {
  const auto log = info.capabilities.find("kernel_log");
  return log != info.capabilities.end() && log->second == "yes";
}

// The shim was not loaded, and the process did not live for long: the program had hardly begun. Unless the kernel says
// that it held more than a start takes.
bool never_began(const View& view, const Death& death) {
  constexpr double kBeginS = 1;
  const ProcessAccount* victim = find_process(*view.recording, death.pid);
  for (const OomKill& kill : view.recording->info.oom_kills)
    if (kill.pid == death.pid && kill.anon_bytes + kill.shmem_bytes >= kNamedGrowthBytes) return false;
  return victim != nullptr && !victim->traced && death.time_s - victim->born_s < kBeginS;
}

std::string who_text(const View& view, const Death& death) {
  const RecordingInfo& info = view.recording->info;
  const std::size_t count = info.oom_kills.size();
  if (count > 1) return fmt::format("{} processes were killed by the kernel", count);
  if (death.pid != view.recording->processes.front().pid)
    return fmt::format("pid {} was killed by the kernel", death.pid);
  return info.oom_kill_probable ? "probably killed by the kernel" : "killed by the kernel";
}

// What no walk has, where that is much of what was held.
std::int64_t much_unseen(std::int64_t held_bytes, std::int64_t walked_bytes) {
  constexpr double kLeastPart = 0.1;
  const std::int64_t unseen = held_bytes - walked_bytes;
  const bool much =
      unseen >= kNamedGrowthBytes && static_cast<double>(unseen) >= kLeastPart * static_cast<double>(held_bytes);
  return much ? unseen : 0;
}

// By the kernel's log: how much of what the victim held, or all of a group of the recording alone, came after the last
// walks. A job may fill its limit between two of them.
std::int64_t unseen_bytes(const View& view, const Death& death, const LastMinute& minute) {
  std::int64_t unseen = 0;
  const auto process =
      std::ranges::find_if(view.processes, [&](const ProcessView& one) { return one.account->pid == death.pid; });
  const auto& kills = view.recording->info.oom_kills;
  if (const auto kill = std::ranges::find(kills, death.pid, &OomKill::pid); kill != kills.end())
    unseen = much_unseen(kill->anon_bytes + kill->shmem_bytes + kill->file_bytes,
                         process == view.processes.end() ? 0 : process->rss.last);
  if (death.group == nullptr || !view.recording->info.cgroup->made_by_record) return unseen;
  std::int64_t walked = 0;
  for (const Holder& holder : minute.held) walked += holder.bytes;
  return std::max(unseen, much_unseen(held_bytes(*death.group), walked));
}

nlohmann::ordered_json victims_json(const RecordingInfo& info) {
  auto victims = nlohmann::ordered_json::array();
  for (const OomKill& kill : info.oom_kills)
    victims.push_back({{"pid", kill.pid},
                       {"time_s", kill.time_s},
                       {"group", kill.group},
                       {"anon_bytes", kill.anon_bytes},
                       {"shmem_bytes", kill.shmem_bytes},
                       {"file_bytes", kill.file_bytes},
                       {"line", kill.line}});
  return victims;
}

std::string kernel_sentence(const RecordingInfo& info) {
  if (!info.oom_kills.empty()) return fmt::format("The kernel's log: \"{}\".", info.oom_kills.front().line);
  std::string text = "The kernel counted a kill in the group as it ended";
  text += log_was_readable(info) ? "." : "; its log was not readable.";
  if (info.oom_kill_probable) text += " That may have been another process of the group.";
  return text;
}

// Before its memory could be walked.
Verdict killed_at_start(const RecordingInfo& info) {
  Verdict verdict{.id = "oom-killed", .severity = Severity::problem};
  verdict.headline = "killed by the kernel at the memory limit";
  if (info.cgroup && info.cgroup->limit_bytes) verdict.headline += " of " + size_text(*info.cgroup->limit_bytes);
  verdict.headline += " before the first snapshot: too small even to start it";
  verdict.why = kernel_sentence(info);
  verdict.advice = kMoreRoom;
  return verdict;
}

std::string limit_text(const RecordingInfo& info) {
  if (!info.cgroup || !info.cgroup->limit_bytes || !info.cgroup->peak_bytes) return "";
  const bool noted = peak_is_noted(*info.cgroup);
  return fmt::format(" (limit {}, {} {} {})", size_text(*info.cgroup->limit_bytes), noted ? "at most" : "up to",
                     size_text(*info.cgroup->peak_bytes), noted ? "used" : "seen");
}

bool kernel_is_cleared(const RecordingInfo& info) {
  return log_was_readable(info) || (info.cgroup && limit_effect(*info.cgroup).oom_kills == 0);
}

// Who sent a SIGKILL that was not found to be the kernel's.
void report_sender(const RecordingInfo& info, Verdict& verdict) {
  verdict.why = "Who sent it is not known: a person, a timeout";
  if (kernel_is_cleared(info)) {
    verdict.headline = "killed by SIGKILL, which a process sent: it was not the kernel for lack of memory";
    verdict.why += ", or a batch system whose own account went over its limit.";
    return;
  }
  verdict.headline = "killed by SIGKILL: the sender is not known, ";
  verdict.headline += info.cgroup && limit_effect(*info.cgroup).oom_kills
                          ? "the kernel killed a process of its group for lack of memory, but at another time"
                          : "neither the kernel's log nor a counter of its kills was readable";
  verdict.why += ", a batch system whose own account went over its limit, or the kernel, for lack of memory.";
}

// The collector would have recorded how it ended.
void report_unseen_end(const RecordingInfo& info, Verdict& verdict) {
  verdict.headline = "ended unseen, and so did whyrss's collector: as when a whole job or container is killed";
  verdict.why = fmt::format(
      "No process was left to record how it ended, and {}. It may also be that the collector alone died, and the "
      "program ended later.",
      log_was_readable(info) ? "no line of the kernel's log names it" : "the kernel's log was not readable");
}

void compare_sums(const View& view, Verdict& verdict) {
  const std::int64_t rss_sum = view.family.accounting.rss_sum;
  const auto& pss = view.family.pss.peak;
  verdict.bytes = rss_sum;
  const bool may_be_more = std::ranges::any_of(
      view.recording->processes, [](const ProcessAccount& process) { return process.high_water_at_least; });
  verdict.why += fmt::format(" RSS added over the processes was {}{}", size_text(rss_sum),
                             may_be_more ? " or more at its peak" : " at most");
  if (pss) verdict.why += fmt::format(", what they really had together (PSS) {}", size_text(*pss));
  verdict.why += ".";
  verdict.advice = "Compare both with the limit of the job.";
  if (view.recording->processes.size() > 1)
    verdict.advice +=
        " Where RSS is added (Slurm's jobacct_gather without UsePss), memory that processes share is counted in each "
        "of them.";
  verdict.evidence["rss_sum_bytes"] = rss_sum;
  verdict.evidence["pss_sum_bytes"] = pss ? nlohmann::ordered_json(*pss) : nlohmann::ordered_json();
}

}  // namespace

void oom_killed(const View& view, std::vector<Verdict>& verdicts) {
  const RecordingInfo& info = view.recording->info;
  if (!has_oom_kill(info)) return;
  if (view.recording->processes.empty()) {
    verdicts.push_back(killed_at_start(info));
    return;
  }
  const Death death = death_of(*view.recording);
  if (is_about_before(view, death.time_s)) return;
  const LastMinute minute = last_minute(view, death.time_s, death.seen_s, death.group);
  Verdict verdict{.id = "oom-killed", .severity = Severity::problem, .pid = death.pid};
  verdict.bytes = minute.before != nullptr ? held_bytes(*minute.before) : 0;
  verdict.headline = fmt::format("{} {}", who_text(view, death), place_text(death));
  verdict.advice =
      "Hold less at a time at the lines named here, or set the limit above what they need. File cache needs no room: "
      "the kernel takes it back first.";
  if (never_began(view, death)) {
    verdict.headline +=
        fmt::format(", {} after its start: too small even to start it",
                    seconds_text(std::max(0.0, death.time_s - view.recording->processes.front().born_s)));
    verdict.advice = kMoreRoom;
  } else {
    verdict.headline += held_text(minute, ",", death.limit_bytes, death.limit_bytes.value_or(0) / kLeastHeldPart);
  }
  const std::int64_t unseen = unseen_bytes(view, death, minute);
  if (unseen > 0) verdict.headline += fmt::format("; {} of it came after the last snapshot", size_text(unseen));
  verdict.why = kernel_sentence(info) + held_sentence(minute) + (unseen > 0 ? "" : grown_sentence(minute));
  if (info.cgroup && info.cgroup->kills_all) verdict.why += " The group is killed as a whole (memory.oom.group).";
  verdict.evidence["at_limit"] = death.at_limit;
  verdict.evidence["certain"] = !info.oom_kill_probable;
  verdict.evidence["unseen_bytes"] = unseen;
  verdict.evidence["limit_bytes"] =
      death.limit_bytes ? nlohmann::ordered_json(*death.limit_bytes) : nlohmann::ordered_json();
  verdict.evidence["killed"] = victims_json(info);
  add_evidence(minute, verdict.evidence);
  verdicts.push_back(std::move(verdict));
}

void killed_from_outside(const View& view, std::vector<Verdict>& verdicts) {
  const RecordingInfo& info = view.recording->info;
  if (view.recording->processes.empty() || has_oom_kill(info)) return;
  if (info.exit_signal != "SIGKILL" && !info.end_unseen) return;
  const ProcessAccount& main = view.recording->processes.front();
  const double end_s = main.ended_s.value_or(info.duration_s);
  if (is_about_before(view, end_s)) return;
  const LastMinute minute = last_minute(view, end_s, end_s);
  Verdict verdict{.id = "killed", .severity = Severity::warning, .pid = main.pid};
  if (info.end_unseen)
    report_unseen_end(info, verdict);
  else
    report_sender(info, verdict);
  verdict.headline += limit_text(info);
  const auto limit_bytes = info.cgroup ? info.cgroup->limit_bytes : std::nullopt;
  // Of a process that is file cache for the most part the largest rest is no answer.
  verdict.headline += held_text(minute, ";", limit_bytes, view.family.accounting.rss_sum / kLeastHeldPart);
  verdict.why += held_sentence(minute) + grown_sentence(minute);
  compare_sums(view, verdict);
  verdict.evidence["end_seen"] = !info.end_unseen;
  verdict.evidence["limit_bytes"] = limit_bytes ? nlohmann::ordered_json(*limit_bytes) : nlohmann::ordered_json();
  add_evidence(minute, verdict.evidence);
  verdicts.push_back(std::move(verdict));
}

}  // namespace whyrss
