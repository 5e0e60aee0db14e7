#include "attribute/page_sharing.h"

#include <algorithm>
#include <utility>

#include "attribute/sharing_round.h"

namespace whyrss {

// A copy, as the map may change while they are visited.
std::vector<PageSharing::Part> PageSharing::parts_within(std::uint64_t start, std::uint64_t end) const {
  std::vector<Part> parts;
  pages_.visit_within(start, end, [&](std::uint64_t from, std::uint64_t to, const Groups& groups) {
    parts.push_back({from, to, groups});
  });
  return parts;
}

// Replaces the groups of every part of [start, end) by what `change` makes of them; parts without any are not visited.
template <typename Change>
void PageSharing::change_within(std::uint64_t start, std::uint64_t end, Change change) {
  for (Part& part : parts_within(start, end)) {
    change(part.groups);
    if (part.groups.empty())
      pages_.erase(part.start, part.end);
    else
      pages_.assign(part.start, part.end, std::move(part.groups));
  }
}

PageSharing::Member PageSharing::add(std::optional<Member> parent, double time_s) {
  if (parent && *parent < processes_.size()) processes_[*parent].has_forked = true;
  processes_.push_back({.parent = parent, .born_s = time_s, .last_walk_s = time_s, .marked_s = {}});
  return static_cast<Member>(processes_.size() - 1);
}

void PageSharing::share(Member child, std::uint64_t start, std::uint64_t end, double time_s) {
  if (start >= end || child >= processes_.size() || !processes_[child].parent) return;
  const Member parent = *processes_[child].parent;
  // Where no processes shared pages before, these two are the first.
  const auto gaps = pages_.gaps_within(start, end);
  const Group pair{.holders = {parent, child}, .missing = {}, .shared_s = time_s, .left_s = kNobody};
  change_within(start, end, [&](Groups& groups) {
    const auto has = [](const Group& group, Member member) {
      return std::ranges::binary_search(group.holders, member);
    };
    if (std::ranges::any_of(groups, [&](const Group& group) { return has(group, child); })) return;  // heard of twice
    for (Group& group : groups) {
      if (!has(group, parent)) continue;
      group.holders.insert(std::ranges::lower_bound(group.holders, child), child);
      group.shared_s = time_s;
      return;
    }
    groups.push_back(pair);
  });
  for (const auto& [from, to] : gaps) pages_.assign(from, to, {pair});
}

void PageSharing::take_out(Groups& groups, Member member, double time_s) const {
  for (Group& group : groups) {
    std::erase(group.missing, member);
    if (std::erase(group.holders, member) == 0) continue;
    group.left_s = std::max(group.left_s, time_s);
    group.shared_s = std::max(group.shared_s, processes_[member].last_walk_s);
  }
  std::erase_if(groups,
                [](const Group& group) { return group.holders.empty() && group.missing.empty() && !group.pending; });
}

void PageSharing::drop(Member member, std::uint64_t start, std::uint64_t end, double time_s) {
  if (member >= processes_.size() || start >= end) return;
  const std::uint64_t mask = page_bytes_ - 1;
  start &= ~mask;
  if (end <= std::numeric_limits<std::uint64_t>::max() - mask) end = (end + mask) & ~mask;
  processes_[member].marked_s.erase(start, end);
  change_within(start, end, [&](Groups& groups) { take_out(groups, member, time_s); });
}

void PageSharing::leave(Member member, double time_s) {
  if (member >= processes_.size() || processes_[member].left) return;
  processes_[member].left = true;
  drop(member, 0, std::numeric_limits<std::uint64_t>::max(), time_s);
}

void PageSharing::copy_some(Member member, std::uint64_t& page_count, std::uint64_t start, std::uint64_t end,
                            std::vector<std::vector<TransitionRange>>& transitions) {
  for (Part& part : parts_within(start, end)) {
    if (page_count == 0) return;
    const auto copied = std::ranges::find_if(part.groups, [&](const Group& group) {
      // Another one was walked later than this one, and was alone with the page then: this one had copied it.
      return group.pending ? std::ranges::count(group.missing, member) > 0
                           : group.holders.size() > 1 && std::ranges::binary_search(group.holders, member);
    });
    if (copied == part.groups.end()) continue;
    const std::uint64_t pages = std::min(page_count, (part.end - part.start) / page_bytes_);
    page_count -= pages;
    part.end = part.start + pages * page_bytes_;
    std::erase(copied->holders, member);
    std::erase(copied->missing, member);
    transitions[member].push_back({part.start, part.end, PageTransition::copied});
    if (copied->pending || copied->holders.size() == 1) {
      const Member kept = copied->pending ? copied->pending->member : copied->holders.front();
      transitions[kept].push_back({part.start, part.end, PageTransition::copied_by_relatives});
      copied->left_s = kNobody;
      copied->pending.reset();
    }
    pages_.assign(part.start, part.end, std::move(part.groups));
  }
}

std::vector<std::vector<TransitionRange>> PageSharing::copy(Member member, std::uint64_t page_count,
                                                            std::uint64_t first) {
  std::vector<std::vector<TransitionRange>> transitions(processes_.size());
  if (member >= processes_.size() || processes_[member].left) return transitions;
  copy_some(member, page_count, first, std::numeric_limits<std::uint64_t>::max(), transitions);
  copy_some(member, page_count, 0, first, transitions);
  for (std::vector<TransitionRange>& ranges : transitions) std::ranges::sort(ranges, {}, &TransitionRange::start);
  return transitions;
}

bool PageSharing::has_forked_since(Member member, double time_s) const {
  return std::ranges::any_of(
      processes_, [&](const Process& process) { return process.parent == member && process.born_s > time_s; });
}

void PageSharing::mark(Member member, std::uint64_t start, std::uint64_t end) {
  if (member >= processes_.size()) return;
  Process& process = processes_[member];
  for (const auto& [from, to] : process.marked_s.gaps_within(start, end))
    process.marked_s.assign(from, to, std::max(process.last_walk_s, process.skipped_walk_s));
}

void PageSharing::skip_walk(Member member, const std::vector<AnonymousRun>& runs, double time_s) {
  if (member >= processes_.size()) return;
  Process& process = processes_[member];
  process.skipped_walk_s = time_s;
  for (const AnonymousRun& run : runs)
    if (!run.marked) process.marked_s.erase(run.start, run.end);
}

std::vector<std::vector<TransitionRange>> PageSharing::observe(const std::vector<Walk>& walks, double time_s) {
  return SharingRound(*this, walks, time_s).play();
}

std::vector<std::vector<TransitionRange>> PageSharing::finish(const std::vector<bool>& ended) {
  std::vector<std::vector<TransitionRange>> transitions(processes_.size());
  const auto is_gone = [&](Member member) { return member < ended.size() && ended[member]; };
  for (const auto& [start, interval] : pages_.intervals())
    for (const Group& group : interval.value)
      if (group.pending && std::ranges::all_of(group.missing, is_gone))
        transitions[group.pending->member].push_back({start, interval.end, PageTransition::left_by_relatives});
  pages_.clear();
  return transitions;
}

}  // namespace whyrss
