#include "attribute/sharing_round.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace whyrss {

SharingRound::Watcher::Watcher(const PageSharing::Look& look, const IntervalMap<bool>& marks_before)
    : member(look.member), copies_left(look.most_copies), runs(*look.runs), marks(marked) {
  for (const auto& [start, interval] : marks_before.intervals()) marked.push_back({start, interval.end});
}

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
    watchers_.push_back(std::make_unique<Watcher>(look, sharing.processes_[look.member].marked));
    by_member_[look.member] = watchers_.back().get();
  }
}

// Fills the sights at `at`; returns up to where they hold.
std::uint64_t SharingRound::look_at(std::uint64_t at, std::uint64_t end) {
  for (const auto& watcher : watchers_) {
    const AnonymousRun* run = watcher->runs.at(at);
    const bool was_marked = watcher->marks.at(at) != nullptr;
    end = std::min({end, watcher->runs.boundary(at), watcher->marks.boundary(at)});
    Sight& sight = watcher->sight;
    sight = {};
    if (run == nullptr) {
      sight.seen = Seen::gone;
    } else if (run->resident) {  // of a swapped page nobody knows who else has it
      sight.seen = run->exclusive ? Seen::alone : Seen::with_others;
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
    else if (sight.wrote == Wrote::yes)
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
    Group own{.holders = {writer},
              .missing = {},
              .untold = false,
              .shared_s = group.shared_s,
              .left_s = PageSharing::kNobody};
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

// Holders that have a page of their own now, and are not known to have written: at most one of them, the keeper, can
// have the old one.
void SharingRound::settle_alone(Parts& parts, Outcome& outcome) const {
  if (parts.alone.empty()) return;
  const std::size_t others = parts.with_others.size() + parts.not_looked.size();
  if (!parts.with_others.empty() && others >= 2) {  // they share the old one
    outcome.add(parts.alone, PageFate::copied);
    parts.copied.insert(parts.copied.end(), parts.alone.begin(), parts.alone.end());
    parts.alone.clear();
    return;
  }
  const auto did_not_write = [&](Member member) { return sight_of(member).wrote == Wrote::no; };
  if (std::ranges::count_if(parts.alone, did_not_write) == 1) {
    parts.keeper = *std::ranges::find_if(parts.alone, did_not_write);
    std::erase(parts.alone, *parts.keeper);
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
    outcome.fates.emplace_back(copied.front(), PageFate::reused);
    copied.erase(copied.begin());
  }
  outcome.add(copied, PageFate::copied);
}

// Whoever still has a page there copied; it cannot be the old one.
void SharingRound::take_missing(Group& group, Outcome& outcome) const {
  bool copied = false;
  for (const Member member : std::exchange(group.missing, {})) {
    const Seen seen = sight_of(member).seen;
    if (seen == Seen::not_looked) group.missing.push_back(member);
    if (seen != Seen::with_others && seen != Seen::alone) continue;
    outcome.fates.emplace_back(member, PageFate::copied);
    copied = true;
  }
  if (!group.untold || !(copied || group.missing.empty())) return;
  group.untold = false;
  if (group.holders.size() == 1)
    outcome.fates.emplace_back(group.holders.front(),
                               copied ? PageFate::copied_by_relatives : PageFate::left_by_relatives);
}

void SharingRound::resolve(const Group& group, Outcome& outcome) const {
  Group after = group;
  take_missing(after, outcome);
  Parts parts = part(group);
  part_from_children(group, parts, outcome);
  settle_alone(parts, outcome);
  settle_writers(group, parts, outcome);

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
  const bool was_shared = group.holders.size() > 1 || group.left_s != PageSharing::kNobody;
  if (after.holders.size() == 1 && was_shared) {
    const Member last = after.holders.front();
    const bool others_copied = !parts.wrote.empty() || !parts.copied.empty();
    if (!others_copied && after.missing.size() > known_missing) {
      after.untold = true;
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
    for (const Range& range : watcher->rewritten) process.marked.erase(range.start, range.end);
  }
  return std::move(fates_);
}

}  // namespace whyrss
