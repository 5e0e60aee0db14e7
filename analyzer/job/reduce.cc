#include "job/reduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <tuple>

#include "export/export_view.h"
#include "job/recording_codec.h"
#include "report/view/blame.h"
#include "report/wording/format.h"

namespace whyrss {
namespace {

std::int64_t milliseconds(double seconds) { return std::llround(seconds * 1000); }

// Of a path the end says more than the begin.
std::string bounded(const std::string& text, bool keep_end = false) {
  if (text.size() <= kMostTextBytes) return printable(text);
  constexpr std::size_t kKept = kMostTextBytes - 3;
  const std::string_view kept = std::string_view(text).substr(keep_end ? text.size() - kKept : 0, kKept);
  return printable(fmt::format("{}{}{}", keep_end ? "..." : "", kept, keep_end ? "" : "..."));
}

// Which file is mapped says more than which line mapped it; of the heap there is nothing to say.
bool has_mapping(Cause cause) {
  return cause == Cause::file_cache || cause == Cause::file_cow || cause == Cause::shared_memory ||
         cause == Cause::device;
}

struct LineSum {
  Cause cause = Cause::unknown;
  JobLine line;
  std::int64_t growth = 0, resident = 0, at_peak = 0;
  double variance = 0;
  // A line matters if it is large in any of its figures.
  [[nodiscard]] std::int64_t size() const { return std::max({std::abs(growth), resident, at_peak}); }
};

JobLine line_of(const StackTable& stacks, const SiteView& site, Cause cause) {
  const Frame* frame = blamed_frame(stacks, site.stack);
  return {.text = bounded(code_line(stacks, frame)),
          .file = frame == nullptr ? std::string() : bounded(frame->file, true),
          .mapping = has_mapping(cause) ? bounded(site.mapping(), true) : std::string()};
}

// Largest first; of equal ones the order is that of cause and line.
std::vector<LineSum> line_sums(const StackTable& stacks, const ProcessView& process) {
  std::map<std::pair<Cause, JobLine>, LineSum> sums;
  for (const CauseView& cause : process.causes)
    for (const SiteView& site : cause.sites) {
      JobLine line = line_of(stacks, site, cause.cause);
      LineSum& sum = sums[{cause.cause, line}];
      sum.cause = cause.cause;
      sum.line = std::move(line);
      sum.growth += site.growth;
      sum.resident += site.resident;
      sum.at_peak += site.at_peak;
      sum.variance += site.variance;
    }
  std::vector<LineSum> list;
  for (auto& [key, sum] : sums) list.push_back(std::move(sum));
  std::ranges::stable_sort(list, std::greater<>(), &LineSum::size);
  return list;
}

// Of a short-lived fork child it was not read: it is its parent's. Parents stand before their children.
const std::map<std::string, std::string>& environment_of(const RecordingAccount& recording,
                                                         const ProcessAccount& process) {
  const ProcessAccount* found = &process;
  for (const ProcessAccount* before = found;
       found->environment.empty() && found->born_by_fork && before != recording.processes.data();)
    if (--before; before->pid == found->parent) found = before;
  return found->environment;
}

class Reducer {
 public:
  Reducer(const View& view, const std::vector<Verdict>& verdicts, ReducedRecording& out)
      : view_(view), verdicts_(verdicts), out_(out) {}

  void add_processes() {
    for (const ProcessView& process : view_.processes) out_.processes.push_back(reduced(process));
  }

 private:
  [[nodiscard]] ReducedProcess reduced(const ProcessView& process) {
    ReducedProcess result = described(process);
    add_moments(process, result);
    add_rss_by_time(process, result);
    add_verdicts(process, result);
    const std::vector<LineSum> lines = line_sums(view_.recording->stacks, process);
    std::size_t count = std::min(lines.size(), kMostLines);
    const std::size_t known_lines = out_.lines.size();
    while (true) {
      list_lines(process, lines, count, result);
      if (count == 0 || encoded_bytes(out_, result) <= kMostProcessBytes) break;
      forget_lines(known_lines);
      count /= 2;
    }
    return result;
  }

  [[nodiscard]] ReducedProcess described(const ProcessView& process) const {
    const ProcessAccount& account = *process.account;
    const JobPlace place = job_place(environment_of(*view_.recording, account));
    ReducedProcess result{.pid = account.pid,
                          .parent = account.parent.value_or(0),
                          .name = bounded(process_name(account)),
                          .born_ms = milliseconds(account.born_s),
                          .born_by_fork = account.born_by_fork,
                          .traced = account.traced,
                          .walked = process.walked,
                          .end_signal = bounded(account.end_signal),
                          .rank = place.rank,
                          .local_rank = place.local_rank,
                          .world_size = place.world_size,
                          .rss_first = process.rss.first,
                          .rss_last = process.rss.last,
                          .rss_peak = process.rss.peak,
                          .high_water = account.high_water_bytes,
                          .pss_peak = process.pss.peak,
                          .copied = process.copied};
    if (account.ended_s) result.ended_ms = milliseconds(*account.ended_s);
    result.oom_killed = std::ranges::any_of(view_.recording->info.oom_kills,
                                            [&](const OomKill& kill) { return kill.pid == account.pid; });
    return result;
  }

  // Fills in `lines`, and in each cause what they leave out.
  void list_lines(const ProcessView& process, const std::vector<LineSum>& lines, std::size_t count,
                  ReducedProcess& result) {
    result.lines.clear();
    result.causes.clear();
    for (const CauseView& cause : process.causes)
      result.causes.push_back({.cause = cause.cause,
                               .first = cause.rss.first,
                               .last = cause.rss.last,
                               .peak = cause.rss.peak,
                               .at_peak = cause.at_peak,
                               .sole_owner = cause.sole_owner.value_or(0)});
    std::ranges::sort(result.causes, {}, &CauseFigures::cause);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const LineSum& line = lines[i];
      if (i < count) {
        result.lines.push_back({line.cause, line_number(line.line), line.growth, line.resident, line.at_peak,
                                static_cast<std::int64_t>(std::ceil(std::sqrt(line.variance) / 1024))});
        continue;
      }
      CauseFigures& cause = *std::ranges::find(result.causes, line.cause, &CauseFigures::cause);
      ++cause.omitted;
      cause.omitted_growth += line.growth;
      cause.omitted_resident += line.resident;
      cause.omitted_at_peak += line.at_peak;
      cause.omitted_most = std::max(cause.omitted_most, line.size());
    }
  }

  std::uint32_t line_number(const JobLine& line) {
    const auto [known, is_new] = line_numbers_.try_emplace(line, static_cast<std::uint32_t>(out_.lines.size()));
    if (is_new) out_.lines.push_back(line);
    return known->second;
  }

  void forget_lines(std::size_t count) {
    for (std::size_t i = count; i < out_.lines.size(); ++i) line_numbers_.erase(out_.lines[i]);
    out_.lines.resize(count);
  }

  // Of more than may be kept the first, the last, and of equal numbers of snapshots the fullest one each.
  static void add_moments(const ProcessView& process, ReducedProcess& result) {
    const std::vector<CauseMoment> all = cause_moments(process);
    const auto keep = [&](const CauseMoment& moment) {
      result.moments.push_back({.time_ms = milliseconds(moment.time_s), .bytes = moment.bytes});
    };
    if (all.size() <= kMostMoments) {
      std::ranges::for_each(all, keep);
      return;
    }
    keep(all.front());
    const std::size_t inner = all.size() - 2, stretches = kMostMoments - 2;
    for (std::size_t i = 0; i < stretches; ++i) {
      const auto begin = all.begin() + 1 + static_cast<std::ptrdiff_t>(inner * i / stretches);
      const auto end = all.begin() + 1 + static_cast<std::ptrdiff_t>(inner * (i + 1) / stretches);
      keep(*std::max_element(begin, end, [](const auto& a, const auto& b) { return a.rss_bytes < b.rss_bytes; }));
    }
    keep(all.back());
  }

  // Each poll holds until the next one.
  static void add_rss_by_time(const ProcessView& process, ReducedProcess& result) {
    const ProcessAccount& account = *process.account;
    const std::vector<RssPoint>& polls = account.polls;
    for (std::size_t i = 0; i < polls.size(); ++i) {
      const double until_s = i + 1 < polls.size() ? polls[i + 1].time_s : account.ended_s.value_or(polls[i].time_s);
      const std::int64_t length_ms = milliseconds(until_s) - milliseconds(polls[i].time_s);
      if (length_ms > 0) result.rss_by_time.add(polls[i].rss_bytes, static_cast<std::uint64_t>(length_ms));
    }
  }

  // Of the process, of the main one also those of the recording as a whole.
  void add_verdicts(const ProcessView& process, ReducedProcess& result) {
    const bool is_main = &process == view_.processes.data();
    for (const Verdict& verdict : verdicts_) {
      if (verdict.pid ? *verdict.pid != process.account->pid : !is_main) continue;
      if (verdict.pid && !mine_first(process)) continue;
      result.verdicts.push_back({.id = bounded(verdict.id),
                                 .severity = verdict.severity,
                                 .bytes = verdict.bytes,
                                 .headline = bounded(verdict.headline)});
    }
    std::ranges::stable_sort(result.verdicts, std::greater<>(), &ReducedVerdict::severity);
    if (result.verdicts.size() > kMostProcessVerdicts) result.verdicts.resize(kMostProcessVerdicts);
  }

  // A pid may be used again: verdicts with it are those of its first process.
  [[nodiscard]] bool mine_first(const ProcessView& process) const {
    for (const ProcessView& other : view_.processes)
      if (other.account->pid == process.account->pid) return &other == &process;
    return false;
  }

  const View& view_;
  const std::vector<Verdict>& verdicts_;
  ReducedRecording& out_;
  std::map<JobLine, std::uint32_t> line_numbers_;
};

}  // namespace

ReducedRecording reduce(const View& view, const std::vector<Verdict>& verdicts) {
  const RecordingAccount& recording = *view.recording;
  const RecordingInfo& info = recording.info;
  const std::string node = first_place(recording, &JobPlace::node);
  ReducedRecording result{.session = bounded(info.session),
                          .host = bounded(info.host),
                          .boot_id = bounded(info.boot_id),
                          .node = bounded(node.empty() ? info.host : node),
                          .job = bounded(first_place(recording, &JobPlace::job)),
                          .version = bounded(info.version),
                          .started = bounded(info.started),
                          .started_ns = info.started_monotonic_ns,
                          .duration_ms = milliseconds(info.duration_s),
                          .mode = bounded(info.mode),
                          .incomplete_why = bounded(info.incomplete_why),
                          .complete = info.complete,
                          .oom_killed = info.oom_killed,
                          .exit_signal = bounded(info.exit_signal.value_or("")),
                          .lost_events = info.lost_events,
                          .lost_snapshots = info.lost_snapshots,
                          .memory_total = info.memory_total_bytes.value_or(0)};
  if (info.exit_code) result.exit_code = *info.exit_code;
  if (info.cgroup) {
    result.group_path = bounded(info.cgroup->path, true);
    result.group_limit = info.cgroup->limit_bytes;
    result.group_peak = info.cgroup->peak_bytes;
  }
  Reducer(view, verdicts, result).add_processes();
  return result;
}

}  // namespace whyrss
