#include "report/verdicts/retained_view_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "report/verdicts/next_steps.h"
#include "report/view/blame.h"
#include "report/view/verdict_thresholds.h"
#include "report/wording/format.h"

namespace whyrss {
namespace {

// What was found by one walk.
using Snapshot = std::span<const RetainedViews>;

std::int64_t buffer_bytes(Snapshot snapshot) {
  std::int64_t bytes = 0;
  for (const RetainedViews& views : snapshot) bytes += views.buffer_bytes;
  return bytes;
}

Snapshot snapshot_at(const ProcessAccount& account, double time_s) {
  const Snapshot all(account.retained_views);
  const auto first = std::find_if(all.begin(), all.end(), [&](const auto& views) { return views.time_s == time_s; });
  const auto last = std::find_if(first, all.end(), [&](const auto& views) { return views.time_s != time_s; });
  return all.subspan(static_cast<std::size_t>(first - all.begin()), static_cast<std::size_t>(last - first));
}

// The last one at the end of the interval, which may be one before it.
Snapshot last_snapshot(const ProcessView& process) {
  const ProcessAccount& account = *process.account;
  const auto after = std::upper_bound(account.view_walks_s.begin(), account.view_walks_s.end(), process.interval.to_s);
  return after == account.view_walks_s.begin() ? Snapshot() : snapshot_at(account, *(after - 1));
}

// The one that found most: CPython frees all that it can before it ends, and is walked after that too.
Snapshot largest_snapshot(const ProcessView& process) {
  Snapshot largest = last_snapshot(process);
  for (const double time_s : process.account->view_walks_s) {
    if (time_s < process.interval.from_s || time_s > process.interval.to_s) continue;
    const Snapshot snapshot = snapshot_at(*process.account, time_s);
    if (buffer_bytes(snapshot) > buffer_bytes(largest)) largest = snapshot;
  }
  return largest;
}

struct Retained {
  std::int64_t buffer_count = 0, buffer_bytes = 0, view_count = 0, view_bytes = 0;
  std::map<std::string, std::int64_t> made_at, viewed_at;  // bytes of buffers, number of views
};

Retained sum_up(const StackTable& stacks, Snapshot found) {
  Retained sum;
  for (const RetainedViews& views : found) {
    sum.buffer_count += views.buffer_count;
    sum.buffer_bytes += views.buffer_bytes;
    sum.view_count += views.view_count;
    sum.view_bytes += views.view_bytes;
    sum.made_at[blamed_line(stacks, views.made_at)] += views.buffer_bytes;
    sum.viewed_at[blamed_line(stacks, views.viewed_at)] += views.view_count;
  }
  return sum;
}

// The line that stands for most; "" where that is not known.
std::string top_line(const std::map<std::string, std::int64_t>& lines) {
  const auto top = std::ranges::max_element(lines, {}, [](const auto& line) { return line.second; });
  return top == lines.end() ? "" : top->first;
}

nlohmann::ordered_json listed(const std::map<std::string, std::int64_t>& lines, const char* unit) {
  auto list = nlohmann::ordered_json::array();
  for (const auto& [line, count] : lines)
    if (!line.empty()) list.push_back({{"line", line}, {unit, count}});
  return list;
}

// Views are not searched for at every walk: what was found may be older than the state that the report ends with.
bool is_older(Snapshot snapshot, const ProcessView& process) {
  return process.at_last && !snapshot.empty() && snapshot.front().time_s < process.at_last->walked_s;
}

// `at_s`: when it was so, where it is no longer, or no later search was made.
Verdict verdict_of(const View& view, const Retained& sum, int pid, std::optional<double> at_s) {
  Verdict verdict{.id = "retained-view", .severity = Severity::warning, .pid = pid, .bytes = sum.buffer_bytes};
  const std::string made = top_line(sum.made_at), viewed = top_line(sum.viewed_at);
  verdict.headline =
      fmt::format("{} in {} {}{} {} kept only by views of {} in all{}", size_text(sum.buffer_bytes), sum.buffer_count,
                  sum.buffer_count == 1 ? "buffer" : "buffers", made.empty() ? "" : fmt::format(" (made at {})", made),
                  at_s ? fmt::format("were at {}", seconds_text(*at_s)) : "are", size_text(sum.view_bytes),
                  viewed.empty() ? "" : fmt::format(" (taken at {})", viewed));
  verdict.why =
      "A view shares the memory of the array, tensor or bytes object that it was taken from, and keeps all of it "
      "alive. "
      "Nothing else refers to these any more.";
  if (viewed.empty())
    verdict.why +=
        fmt::format(" Which line took the views is not known in this mode; {}", next_steps(view).each_object);
  verdict.advice = "Keep a copy of the part instead of the view: part.copy() of an array, part.clone() of a tensor.";
  verdict.evidence["buffer_count"] = sum.buffer_count;
  verdict.evidence["buffer_bytes"] = sum.buffer_bytes;
  verdict.evidence["view_count"] = sum.view_count;
  verdict.evidence["view_bytes"] = sum.view_bytes;
  verdict.evidence["made_at"] = listed(sum.made_at, "buffer_bytes");
  verdict.evidence["taken_at"] = listed(sum.viewed_at, "view_count");
  return verdict;
}

}  // namespace

std::int64_t retained_by_views(const ProcessView& process) { return buffer_bytes(last_snapshot(process)); }

void retained_view(const View& view, std::vector<Verdict>& verdicts) {
  for (const ProcessView& process : view.processes) {
    const Snapshot snapshot = largest_snapshot(process);
    const Retained sum = sum_up(view.recording->stacks, snapshot);
    const bool gone = buffer_bytes(last_snapshot(process)) * 2 < sum.buffer_bytes;
    const bool large =
        sum.buffer_bytes >= kNamedGrowthBytes &&
        static_cast<double>(sum.buffer_bytes) >= kNamedGrowthShare * static_cast<double>(process.rss.peak);
    if (large)
      verdicts.push_back(
          verdict_of(view, sum, process.account->pid,
                     gone || is_older(snapshot, process) ? std::optional(snapshot.front().time_s) : std::nullopt));
  }
}

}  // namespace whyrss
