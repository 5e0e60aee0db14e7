#include "attribute/sharing_round.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace whyrss {
namespace {

template <typename T>
void keep_each_once(std::vector<T>& values) {
  std::ranges::sort(values);
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

std::vector<Range> ranges_of(const IntervalMap<bool>& map) {
  std::vector<Range> ranges;
  for (const auto& [start, interval] : map.intervals()) ranges.push_back({start, interval.end});
  return ranges;
}

}  // namespace

SharingRound::Watcher::Watcher(const PageSharing::Look& look, const PageSharing::Process& process)
    : member(look.member),
      copies_left(look.most_copies),
      wrote_s(look.wrote_s),
      marked(ranges_of(process.marked)),
      whole(process.whole ? ranges_of(*process.whole) : std::vector<Range>{}),
      knows_whole(process.whole.has_value()),
      seen(*look.runs),
      runs(seen),
      marks(marked),
      wholes(whole) {}

std::vector<SharingRound::Member> SharingRound::Parts::stay() const {
  if (keeper) return {*keeper};
  std::vector<Member> members = with_others;
  members.insert(members.end(), not_looked.begin(), not_looked.end());
  std::ranges::sort(members);
  return members;
}

SharingRound::SharingRound(PageSharing& sharing, const std::vector<PageSharing::Look>& looks, double time_s)
    : sharing_(sharing),
      time_s_(time_s),
      by_member_(sharing.processes_.size(), nullptr),
      fates_(sharing.processes_.size()) {
  for (const PageSharing::Look& look : looks) {
    if (look.member >= by_member_.size() || by_member_[look.member] != nullptr) continue;
    watchers_.push_back(std::make_unique<Watcher>(look, sharing.processes_[look.member]));
    by_member_[look.member] = watchers_.back().get();
  }
}

// Fills the sights at `at`; returns up to where they hold.
std::uint64_t SharingRound::look_at(std::uint64_t at, std::uint64_t end) {
  for (const auto& watcher : watchers_) {
    const AnonymousRun* run = watcher->runs.at(at);
    const bool was_marked = watcher->marks.at(at) != nullptr;
    const bool was_small = watcher->knows_whole && watcher->wholes.at(at) == nullptr;
    end = std::min({end, watcher->runs.boundary(at), watcher->marks.boundary(at), watcher->wholes.boundary(at)});
    Sight& sight = watcher->sight;
    sight = {};
    if (run == nullptr) {
      sight.seen = Seen::gone;
    } else if (run->resident) {  // of a swapped page nobody knows who else has it
      // The kernel splits a huge page before it copies a part of it, and tells of a whole one whether its first part is
      // mapped once (do_huge_pmd_wp_page in mm/huge_memory.c, pagemap_pmd_range in fs/proc/task_mmu.c).
      sight.merged = run->huge && run->exclusive && was_small;
      sight.whole = run->huge && !sight.merged;
      sight.seen = run->exclusive && !sight.whole ? Seen::alone : Seen::with_others;
      if (was_marked) sight.wrote = run->marked ? Wrote::no : Wrote::yes;
    }
  }
  return end;
}

SharingRound::Sight SharingRound::sight_of(Member member) const {
  return by_member_[member] == nullptr ? Sight{} : by_member_[member]->sight;
}

SharingRound::Parts SharingRound::part(const Group& group) const {
  Parts parts;
  for (const Member member : group.holders) {
    const Sight sight = sight_of(member);
    if (sight.seen == Seen::gone)
      parts.gone.push_back(member);
    else if (sight.wrote == Wrote::yes || (sight.merged && group.holders.size() > 1))
      parts.wrote.push_back(member);
    else if (sight.seen == Seen::alone)
      parts.alone.push_back(member);
    else
      (sight.seen == Seen::with_others ? parts.with_others : parts.not_looked).push_back(member);
  }
  return parts;
}

// A process that wrote and then forked shares its own copy with those children, and the old page with nobody.
void SharingRound::part_from_children(const Group& group, Parts& parts, Outcome& outcome) const {
  for (std::size_t i = 0; i < parts.wrote.size();) {
    const Member writer = parts.wrote[i];
    const auto follows = [&](Member member) {
      const PageSharing::Process& process = sharing_.processes_[member];
      return process.parent == writer && process.born_s > sharing_.processes_[writer].last_look_s;
    };
    Group own{.holders = {writer}, .missing = {}, .shared_s = group.shared_s, .left_s = PageSharing::kNobody};
    if (sight_of(writer).seen == Seen::with_others)
      for (std::vector<Member>* members : {&parts.with_others, &parts.not_looked, &parts.alone}) {
        std::ranges::copy_if(*members, std::back_inserter(own.holders), follows);
        std::erase_if(*members, follows);
      }
    if (own.holders.size() == 1) {
      ++i;
      continue;
    }
    const bool alone_before = own.holders.size() == group.holders.size() && group.left_s == PageSharing::kNobody;
    outcome.fates.emplace_back(writer, alone_before ? PageFate::reused : PageFate::copied);
    if (!alone_before) parts.copied.push_back(writer);
    std::ranges::sort(own.holders);
    outcome.groups.push_back(std::move(own));
    parts.wrote.erase(parts.wrote.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

// One is alone, and the others share a page: they may be a process that copied the page and the children that it forked
// after that. So it is where the one that is alone cannot have copied.
bool SharingRound::part_from_copier(const Group& group, Parts& parts, Outcome& outcome) const {
  if (parts.alone.size() != 1 || parts.with_others.empty()) return false;
  const Member alone = parts.alone.front();
  if (sight_of(alone).wrote != Wrote::no && by_member_[alone]->copies_left > 0) return false;
  std::vector<Member> others = parts.with_others;
  others.insert(others.end(), parts.not_looked.begin(), parts.not_looked.end());
  std::ranges::sort(others);
  const Member copier = others.front();  // numbered by birth
  const Sight sight = sight_of(copier);
  const bool may_be =
      sight.seen == Seen::with_others || (sight.seen == Seen::not_looked && sight_of(alone).wrote == Wrote::no);
  if (others.size() < 2 || !may_be || sight.wrote == Wrote::no || sight.whole) return false;
  const bool all_follow = std::all_of(others.begin() + 1, others.end(), [&](Member member) {
    const PageSharing::Process& process = sharing_.processes_[member];
    return process.parent == copier && process.born_s > sharing_.processes_[copier].last_look_s;
  });
  if (!all_follow) return false;
  outcome.fates.emplace_back(copier, PageFate::copied);
  outcome.groups.push_back(
      {.holders = std::move(others), .missing = {}, .shared_s = group.shared_s, .left_s = PageSharing::kNobody});
  parts.copied.push_back(copier);
  parts.with_others.clear();
  parts.not_looked.clear();
  parts.keeper = alone;
  parts.alone.clear();
  return true;
}

// Holders that have a page of their own now, and are not known to have written: at most one of them, the keeper, can
// have the old one.
void SharingRound::settle_alone(Parts& parts, Outcome& outcome) const {
  if (parts.alone.empty()) return;
  const std::size_t others = parts.with_others.size() + parts.not_looked.size();
  const auto did_not_write = [&](Member member) { return sight_of(member).wrote == Wrote::no; };
  const auto has_it_whole = [&](Member member) { return sight_of(member).whole; };
  const bool shared_by_others = !parts.with_others.empty() && others >= 2;
  const bool one_did_not_write = !shared_by_others && std::ranges::count_if(parts.alone, did_not_write) == 1;
  if (one_did_not_write) {
    parts.keeper = *std::ranges::find_if(parts.alone, did_not_write);
    std::erase(parts.alone, *parts.keeper);
  }
  if (one_did_not_write || shared_by_others || std::ranges::any_of(parts.with_others, has_it_whole)) {
    for (const Member member : parts.alone)
      if (by_member_[member]->copies_left > 0) outcome.guessed.push_back(member);
    outcome.add(parts.alone, PageFate::copied);
    parts.copied.insert(parts.copied.end(), parts.alone.begin(), parts.alone.end());
  } else if (parts.alone.size() == 1 && others == 0) {
    parts.keeper = parts.alone.front();
  } else {
    guess_alone(parts, outcome);
  }
  parts.alone.clear();
}

// Children first: a parent mostly waits for them. Whoever took no faults has not written.
void SharingRound::guess_alone(Parts& parts, Outcome& outcome) const {
  const bool all_may = parts.with_others.size() + parts.not_looked.size() > 0;
  std::size_t to_copy = parts.alone.size() - (all_may ? 0 : 1);
  std::vector<Member> left;
  std::ranges::reverse(parts.alone);
  for (const Member member : parts.alone) {
    if (to_copy == 0 || by_member_[member]->copies_left == 0) {
      left.push_back(member);
      continue;
    }
    --to_copy;
    outcome.fates.emplace_back(member, PageFate::copied);
    outcome.guessed.push_back(member);
    parts.copied.push_back(member);
  }
  if (left.empty()) return;
  parts.keeper = left.back();
  left.pop_back();
  outcome.add(left, PageFate::left_by_relatives);
}

// Nobody holds the page any more, and one who held it has left: it copied if it is likely to have written before. Both
// lie between the last time that the page is known to have been shared and now.
bool SharingRound::wrote_before_the_end(const Group& group, const Parts& parts) const {
  const double left_s = parts.gone.empty() ? group.left_s : time_s_;
  double shared_s = group.shared_s;
  for (const Member member : parts.wrote) shared_s = std::max(shared_s, sharing_.processes_[member].last_look_s);
  return left_s - shared_s > time_s_ - left_s;
}

void SharingRound::settle_writers(const Group& group, const Parts& parts, Outcome& outcome) const {
  if (parts.wrote.empty()) return;
  std::vector<Member> copied = parts.wrote;
  const bool somebody_left = !parts.gone.empty() || group.left_s != PageSharing::kNobody;
  if (parts.stay().empty() && !(somebody_left && wrote_before_the_end(group, parts))) {
    // Of each page one was the last: likely the same one, the oldest where nothing tells.
    const auto last = std::ranges::max_element(copied, {}, [&](Member member) { return by_member_[member]->wrote_s; });
    outcome.fates.emplace_back(*last, PageFate::reused);
    copied.erase(last);
  }
  outcome.add(copied, PageFate::copied);
}

// Of those that hold it no more: the ones that a process forked after it shared the page with the one that holds it
// alone. They got what it had made of the page by then.
std::vector<SharingRound::Member> SharingRound::followers(const Group& group, Member parent) const {
  std::vector<Member> members;
  for (const Member member : group.missing) {
    const Sight sight = sight_of(member);
    const bool may_share = sight.seen == Seen::not_looked || sight.seen == Seen::with_others;
    if (may_share && sharing_.processes_[member].parent == parent && member > group.untold)  // numbered by birth
      members.push_back(member);
  }
  return members;
}

// Whoever still has a page there copied, as it cannot be the old one; unless it did not write: then it has the old one,
// and who seemed to be left alone with that copied. Who shares a page, and may do so with none that it forked since,
// did not write.
void SharingRound::take_missing(Group& group, Outcome& outcome) const {
  bool copied = false;
  std::vector<Member> unwritten, still_missing;
  const auto share_a_copy = [&](Member parent, std::vector<Member> with) {
    copied = true;
    outcome.fates.emplace_back(parent, PageFate::copied);
    with.insert(std::ranges::lower_bound(with, parent), parent);
    for (std::vector<Member>* members : {&group.missing, &still_missing})
      std::erase_if(*members, [&](Member member) { return std::ranges::count(with, member) > 0; });
    outcome.groups.push_back(
        {.holders = std::move(with), .missing = {}, .shared_s = group.shared_s, .left_s = PageSharing::kNobody});
  };
  while (!group.missing.empty()) {
    const Member member = group.missing.front();
    const Sight sight = sight_of(member);
    const bool shares = sight.seen == Seen::with_others;
    const bool is_unwritten = sight.wrote == Wrote::no || sight.whole;
    const std::vector<Member> forked =
        group.untold && shares && !is_unwritten ? followers(group, member) : std::vector<Member>{};
    if (!forked.empty()) {
      share_a_copy(member, forked);
      continue;
    }
    group.missing.erase(group.missing.begin());
    if (sight.seen == Seen::not_looked) still_missing.push_back(member);
    if (!shares && sight.seen != Seen::alone) continue;
    // It cannot have copied: it has what its parent copied before it forked it. If that is known not to hold any such
    // page, it has copied once more since.
    const std::optional<Member> parent = sharing_.processes_[member].parent;
    const bool cannot_copy = by_member_[member]->copies_left == 0 && sight.wrote == Wrote::not_known;
    const bool is_parents =
        cannot_copy || (group.untold && member > group.untold && shares && sight.wrote != Wrote::yes);
    if (is_parents && parent && std::ranges::count(still_missing, *parent) > 0) {
      share_a_copy(*parent, {member});
    } else if (cannot_copy && !shares && !group.untold && parent && std::ranges::count(group.holders, *parent) == 0) {
      outcome.fates.emplace_back(*parent, PageFate::copied);
      outcome.fates.emplace_back(member, PageFate::copied_by_relatives);
    } else if (group.untold && (is_unwritten || (shares && sight.wrote == Wrote::not_known))) {
      unwritten.push_back(member);
    } else {
      copied = true;
      outcome.fates.emplace_back(member, PageFate::copied);
      if (by_member_[member]->copies_left > 0) outcome.guessed.push_back(member);
    }
  }
  group.missing = std::move(still_missing);
  if (!unwritten.empty()) {
    outcome.fates.emplace_back(*group.untold, PageFate::copied);
    group.untold.reset();
    std::vector<Member> of_the_copy = std::exchange(group.holders, std::move(unwritten));
    if (of_the_copy.size() > 1)  // it has forked since
      outcome.groups.push_back({.holders = std::move(of_the_copy),
                                .missing = {},
                                .shared_s = group.shared_s,
                                .left_s = PageSharing::kNobody});
    if (group.holders.size() == 1 && group.missing.empty())
      outcome.fates.emplace_back(group.holders.front(), PageFate::copied_by_relatives);
    else if (group.holders.size() == 1)
      group.untold = group.holders.front();
  }
  if (!group.untold || !(copied || group.missing.empty())) return;
  outcome.fates.emplace_back(*group.untold, copied ? PageFate::copied_by_relatives : PageFate::left_by_relatives);
  group.untold.reset();
}

void SharingRound::resolve(const Group& group, Outcome& outcome) const {
  Group after = group;
  take_missing(after, outcome);
  const bool was_shared = after.holders.size() > 1 || after.left_s != PageSharing::kNobody;
  Parts parts = part(after);
  part_from_children(after, parts, outcome);
  if (!part_from_copier(after, parts, outcome)) settle_alone(parts, outcome);
  settle_writers(after, parts, outcome);

  after.holders = parts.stay();
  const std::size_t known_missing = after.missing.size();
  if (parts.keeper) {  // then those who seemed to share it do not: since their look, or not looked at
    for (const std::vector<Member>* members : {&parts.with_others, &parts.not_looked})
      after.missing.insert(after.missing.end(), members->begin(), members->end());
    std::ranges::sort(after.missing);
  }
  for (const Member member : parts.gone) {
    after.left_s = time_s_;
    after.shared_s = std::max(after.shared_s, sharing_.processes_[member].last_look_s);
  }
  if (after.holders.size() == 1 && was_shared) {
    const Member last = after.holders.front();
    const bool others_copied = !parts.wrote.empty() || !parts.copied.empty();
    if (!others_copied && after.missing.size() > known_missing) {
      after.untold = last;
      after.left_s = PageSharing::kNobody;
    } else if (others_copied || sight_of(last).seen != Seen::not_looked) {
      // Until it is looked at it may turn out to have copied before the others left.
      outcome.fates.emplace_back(last, others_copied ? PageFate::copied_by_relatives : PageFate::left_by_relatives);
      after.left_s = PageSharing::kNobody;
    }
  } else if (parts.not_looked.empty()) {
    after.left_s = PageSharing::kNobody;
  }
  if (!after.holders.empty() || !after.missing.empty()) outcome.groups.push_back(std::move(after));
}

void SharingRound::take(Outcome outcome, std::uint64_t start, std::uint64_t end,
                        IntervalMap<PageSharing::Groups>& pages) {
  for (const auto& [member, fate] : outcome.fates) {
    std::vector<FateRange>& ranges = fates_[member];
    if (!ranges.empty() && ranges.back().end == start && ranges.back().fate == fate)
      ranges.back().end = end;
    else
      ranges.push_back({start, end, fate});
    // What it wrote unseen its next look must not tell once more.
    if (fate == PageFate::copied && by_member_[member] == nullptr) sharing_.processes_[member].marked.erase(start, end);
  }
  for (const Member member : outcome.guessed) by_member_[member]->copies_left -= (end - start) / sharing_.page_bytes_;
  for (const auto& watcher : watchers_)
    if (watcher->sight.wrote == Wrote::yes) watcher->rewritten.push_back({start, end});
  if (!outcome.groups.empty()) pages.assign(start, end, std::move(outcome.groups));
}

std::vector<std::vector<FateRange>> SharingRound::play() {
  IntervalMap<PageSharing::Groups> pages;
  for (const auto& [start, interval] : sharing_.pages_.intervals()) {
    for (std::uint64_t at = start; at < interval.end;) {
      std::uint64_t end = look_at(at, interval.end);
      Outcome outcome;
      for (const Group& group : interval.value) resolve(group, outcome);
      keep_each_once(outcome.guessed);  // a member may be in two groups, of which it can have copied one
      keep_each_once(outcome.fates);
      for (const Member member : outcome.guessed) {
        const std::uint64_t most_pages = by_member_[member]->copies_left;
        if (most_pages < (end - at) / sharing_.page_bytes_) end = at + most_pages * sharing_.page_bytes_;
      }
      take(std::move(outcome), at, end, pages);
      at = end;
    }
  }
  sharing_.pages_ = std::move(pages);
  for (const auto& watcher : watchers_) {
    PageSharing::Process& process = sharing_.processes_[watcher->member];
    process.last_look_s = time_s_;
    process.whole.emplace();
    for (const AnonymousRun& run : watcher->seen)
      if (run.huge) process.whole->assign(run.start, run.end, true);
    for (const Range& range : watcher->rewritten) process.marked.erase(range.start, range.end);
  }
  return std::move(fates_);
}

}  // namespace whyrss
