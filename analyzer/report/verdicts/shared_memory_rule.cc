#include "report/verdicts/shared_memory_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string_view>

#include "report/view/blame.h"
#include "report/view/line_text.h"
#include "report/view/verdict_thresholds.h"
#include "report/wording/format.h"

namespace whyrss {
namespace {

constexpr std::string_view kDeleted = " (deleted)";

// Of one process, its pages of one segment.
struct Sharer {
  const ProcessView* process = nullptr;
  std::vector<const SiteView*> sites;
  std::int64_t resident = 0, before = 0, exclusive = 0;
  double since_s = std::numeric_limits<double>::infinity();  // when it first had half of what it had at most
};

struct Segment {
  std::vector<Sharer> sharers;
  bool unlinked = false;

  // Pages that several map are there once: exact where one process maps all of it, or none maps what another does.
  [[nodiscard]] std::int64_t once() const {
    std::int64_t most = 0, exclusive = 0;
    for (const Sharer& sharer : sharers) {
      most = std::max(most, sharer.resident);
      exclusive += sharer.exclusive;
    }
    return std::max(most, exclusive);
  }
  // Where no process maps what another does, each has a part that only its own sites show.
  [[nodiscard]] std::vector<const SiteView*> sites() const {
    if (once() == creator().resident) return creator().sites;
    std::vector<const SiteView*> all;
    for (const Sharer& sharer : sharers)
      if (2 * sharer.exclusive > sharer.resident) all.insert(all.end(), sharer.sites.begin(), sharer.sites.end());
    return all.empty() ? creator().sites : all;
  }
  [[nodiscard]] std::int64_t growth() const {
    std::int64_t before = 0;
    for (const Sharer& sharer : sharers) before = std::max(before, sharer.before);
    return once() - before;
  }
  // Who had it first, and so made it.
  [[nodiscard]] const Sharer& creator() const { return *std::ranges::min_element(sharers, {}, &Sharer::since_s); }
};

// With and without a name it is the same segment.
std::string segment_name(const std::string& mapping) {
  return mapping.ends_with(kDeleted) ? mapping.substr(0, mapping.size() - kDeleted.size()) : mapping;
}

// What a process had of each segment, by time.
using Series = std::vector<std::pair<double, std::int64_t>>;

std::map<std::string, Series> series_of(const ProcessView& process, Interval interval) {
  std::map<std::string, Series> all;
  for (const Account& account : process.account->accounts) {
    if (account.time_s > interval.to_s) break;
    for (const Slice& slice : account.slices) {
      if (slice.site.cause != Cause::shared_memory) continue;
      Series& series = all[segment_name(slice.site.mapping)];
      if (series.empty() || series.back().first < account.time_s) series.emplace_back(account.time_s, 0);
      series.back().second += slice.bytes;
    }
  }
  return all;
}

double first_had_half(const Series& series) {
  std::int64_t most = 0;
  for (const auto& [time_s, bytes] : series) most = std::max(most, bytes);
  for (const auto& [time_s, bytes] : series)
    if (bytes * 2 >= most) return time_s;
  return std::numeric_limits<double>::infinity();
}

std::map<std::string, Segment> segments_of(const View& view) {
  std::map<std::string, Segment> segments;
  for (const ProcessView& process : view.processes) {
    const CauseView* cause = process.find(Cause::shared_memory);
    if (cause == nullptr) continue;
    std::map<std::string, Sharer> own;
    for (const SiteView& site : cause->sites) {
      const std::string name = segment_name(site.mapping());
      Sharer& sharer = own[name];
      sharer.process = &process;
      sharer.sites.push_back(&site);
      sharer.resident += site.resident;
      sharer.before += site.resident - site.growth;
      sharer.exclusive += site.exclusive;
      if (site.resident > 0 && site.mapping().ends_with(kDeleted)) segments[name].unlinked = true;
    }
    const std::map<std::string, Series> series = series_of(process, process.interval);
    for (auto& [name, sharer] : own) {
      if (const auto found = series.find(name); found != series.end()) sharer.since_s = first_had_half(found->second);
      segments[name].sharers.push_back(std::move(sharer));
    }
  }
  return segments;
}

// Segments that one line made, mostly by the dozen.
struct Group {
  std::vector<std::string> names;
  std::vector<const Segment*> segments;
  std::vector<const SiteView*> sites;  // of who made it, or of all who made a part
  std::int64_t bytes = 0, growth = 0;
};

enum class Lifetime { named, unlinked, anonymous, system_v };

Lifetime lifetime_of(const Group& group) {
  if (group.names.front().starts_with("/SYSV")) return Lifetime::system_v;
  if (group.names.front() == "/dev/zero" || group.names.front().empty()) return Lifetime::anonymous;
  const bool unlinked = std::ranges::all_of(group.segments, &Segment::unlinked);
  return unlinked ? Lifetime::unlinked : Lifetime::named;
}

std::string lifetime_text(Lifetime lifetime) {
  switch (lifetime) {
    case Lifetime::named:
      return "It still has its name: without an unlink it stays after the program has ended, until the machine "
             "restarts.";
    case Lifetime::unlinked:
      return "It has no name any more: it goes with the last process that maps it or has it open.";
    case Lifetime::anonymous:
      return "It never had a name: it goes with the last process that maps it.";
    case Lifetime::system_v:
      return "It is a System V segment: unless it was marked for removal (shmctl with IPC_RMID, ipcrm -m) it stays "
             "after the program has ended.";
  }
  return "";
}

std::string_view lifetime_slug(Lifetime lifetime) {
  constexpr std::string_view kSlugs[] = {"named", "unlinked", "anonymous", "system_v"};
  return kSlugs[static_cast<std::size_t>(lifetime)];
}

std::string name_text(const Group& group) {
  if (group.names.size() > 1) return fmt::format(" in {} segments", group.names.size());
  const Lifetime lifetime = lifetime_of(group);
  return lifetime == Lifetime::anonymous ? "" : " " + printable(base_name(group.names.front()));
}

// By process: what it maps of the group, and where it touched it.
struct Share {
  const ProcessView* process = nullptr;
  std::vector<const SiteView*> sites;
  std::int64_t resident = 0;
};

std::vector<Share> shares_of(const Group& group) {
  std::vector<Share> shares;
  for (const Segment* segment : group.segments)
    for (const Sharer& sharer : segment->sharers) {
      if (sharer.resident == 0) continue;
      auto share = std::ranges::find(shares, sharer.process, &Share::process);
      if (share == shares.end()) share = shares.insert(shares.end(), {sharer.process, {}, 0});
      share->resident += sharer.resident;
      share->sites.insert(share->sites.end(), sharer.sites.begin(), sharer.sites.end());
    }
  return shares;
}

nlohmann::ordered_json share_evidence(const View& view, const Share& share) {
  return {{"pid", share.process->account->pid},
          {"resident_bytes", share.resident},
          {"touched_at", line_evidence(growth_by_touch(view.recording->stacks, share.sites))}};
}

Verdict verdict_of(const View& view, const Group& group) {
  const StackTable& stacks = view.recording->stacks;
  const ProcessView& creator = *group.segments.front()->creator().process;
  const std::vector<LineGrowth> lines = growth_by_line(stacks, group.sites);
  const std::vector<LineGrowth> fillers = growth_by_touch(stacks, group.sites);
  const std::vector<Share> shares = shares_of(group);
  const Lifetime lifetime = lifetime_of(group);
  Verdict verdict{.id = "shared-memory-growth", .pid = creator.account->pid, .bytes = group.growth};
  // Who touched a page first may have read what others wrote, or write() filled.
  const char* touched = touch_verb(Cause::shared_memory);
  std::string where = kept_where(lines, group.growth, "mapped", touched);
  if (top_named(lines) == nullptr) where = kept_where(fillers, group.growth, touched);
  verdict.headline = fmt::format("{} shared memory{}{}", size_text(group.growth), name_text(group), where);
  if (shares.size() > 1) verdict.headline += fmt::format(", mapped by {} processes and there once", shares.size());
  verdict.why =
      "Shared memory counts in the RSS of every process that touched it, and no file on disk backs it: without "
      "swap the kernel cannot take it back. " +
      lifetime_text(lifetime);
  verdict.advice =
      "Expected if the processes need it together: it is cheaper than a copy for each. If there are ever more "
      "segments, close and unlink each when its last reader is done.";
  if (std::ranges::any_of(group.names, [](const std::string& name) { return name.find("torch_") != name.npos; }))
    verdict.advice +=
        " Segments named torch_ are tensors that torch passed from process to process, as batches of a DataLoader: one "
        "stays as long as a tensor, a view or a numpy array of it is kept. Where a part is enough, keep its clone().";
  for (const Share& share : shares)
    if (share.process != &creator) verdict.covered_pids.push_back(share.process->account->pid);
  verdict.evidence["growth_bytes"] = group.growth;
  verdict.evidence["resident_once_bytes"] = group.bytes;
  verdict.evidence["segment_count"] = group.names.size();
  auto names = nlohmann::ordered_json::array();
  for (const std::string& name : group.names)
    if (names.size() < kEvidenceEntries) names.push_back(name);
  verdict.evidence["segments"] = std::move(names);
  verdict.evidence["lifetime"] = lifetime_slug(lifetime);
  verdict.evidence["mapped_at"] = line_evidence(lines);
  verdict.evidence["filled_at"] = line_evidence(fillers);
  auto list = nlohmann::ordered_json::array();
  for (const Share& share : shares) list.push_back(share_evidence(view, share));
  verdict.evidence["processes"] = std::move(list);
  return verdict;
}

// What was there before, and is mapped by one more process now: its RSS grew, the memory did not.
void report_mapped_again(const View& view, const std::map<std::string, Segment>& segments,
                         std::vector<Verdict>& verdicts) {
  std::map<const ProcessView*, std::int64_t> again;
  for (const auto& [name, segment] : segments)
    for (const Sharer& sharer : segment.sharers)
      if (segment.growth() < sharer.resident - sharer.before)
        again[sharer.process] += sharer.resident - sharer.before - segment.growth();
  for (const ProcessView& process : view.processes) {
    const auto found = again.find(&process);
    const bool reported = std::ranges::any_of(verdicts, [&](const Verdict& verdict) {
      return verdict.id == "shared-memory-growth" &&
             std::ranges::find(verdict.covered_pids, process.account->pid) != verdict.covered_pids.end();
    });
    if (reported || found == again.end() || !is_worth_naming(found->second, process)) continue;
    Verdict verdict{
        .id = "shared-memory-growth", .severity = Severity::ok, .pid = process.account->pid, .bytes = found->second};
    verdict.headline =
        fmt::format("{} shared memory that another process had already: no new memory", size_text(found->second));
    verdict.why = "The process touched pages that are there anyway. They count in its RSS too.";
    verdict.advice = "Nothing to fix. Compare PSS, which counts them once for all processes.";
    verdict.evidence["mapped_again_bytes"] = found->second;
    verdicts.push_back(std::move(verdict));
  }
}

}  // namespace

void shared_memory_growth(const View& view, std::vector<Verdict>& verdicts) {
  const std::map<std::string, Segment> segments = segments_of(view);
  std::map<std::pair<int, std::string>, Group> groups;
  for (const auto& [name, segment] : segments) {
    if (segment.once() == 0 || segment.growth() <= 0) continue;
    const Sharer& creator = segment.creator();
    const auto lines = growth_by_line(view.recording->stacks, creator.sites);
    Group& group = groups[{creator.process->account->pid, lines.empty() ? "" : lines.front().line}];
    group.names.push_back(name);
    group.segments.push_back(&segment);
    const std::vector<const SiteView*> sites = segment.sites();
    group.sites.insert(group.sites.end(), sites.begin(), sites.end());
    group.bytes += segment.once();
    group.growth += segment.growth();
  }
  for (const auto& [key, group] : groups)
    if (is_worth_naming(group.growth, *group.segments.front()->creator().process))
      verdicts.push_back(verdict_of(view, group));
  report_mapped_again(view, segments, verdicts);
}

}  // namespace whyrss
