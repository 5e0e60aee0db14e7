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

SharingRound::Watcher::Watcher(const PageSharing::Walk& walk, const PageSharing::Process& process)
    : member(walk.member),
      copies_left(walk.most_copies - std::min(walk.most_copies, process.copies_unseen)),
      wrote_s(walk.wrote_s),
      walked_s(walk.walked_s),
      whole(process.whole ? ranges_of(*process.whole) : std::vector<Range>{}),
      knows_whole(process.whole.has_value()),
      holding(*walk.runs),
      runs(holding),
      marks(marked),
      wholes(whole) {
  for (const auto& [start, interval] : process.marked_s.intervals())
    marked.push_back({{.start = start, .end = interval.end}, interval.value});
}

std::vector<SharingRound::Member> SharingRound::HolderClasses::stay() const {
  if (sole_holder) return {*sole_holder};
  std::vector<Member> members = with_others;
  members.insert(members.end(), not_walked.begin(), not_walked.end());
  std::ranges::sort(members);
  return members;
}

SharingRound::SharingRound(PageSharing& sharing, const std::vector<PageSharing::Walk>& walks, double time_s)
    : sharing_(sharing),
      time_s_(time_s),
      by_member_(sharing.processes_.size(), nullptr),
      transitions_(sharing.processes_.size()) {
  for (const PageSharing::Walk& walk : walks) {
    if (walk.member >= by_member_.size() || by_member_[walk.member] != nullptr) continue;
    watchers_.push_back(std::make_unique<Watcher>(walk, sharing.processes_[walk.member]));
    by_member_[walk.member] = watchers_.back().get();
  }
}

// Fills the observations at `at`; returns up to where they hold.
std::uint64_t SharingRound::observe_at(std::uint64_t at, std::uint64_t end) {
  for (const auto& watcher : watchers_) {
    const AnonymousRun* run = watcher->runs.at(at);
    const Marked* const mark = watcher->marks.at(at);
    const bool was_small = watcher->knows_whole && watcher->wholes.at(at) == nullptr;
    end = std::min({end, watcher->runs.boundary(at), watcher->marks.boundary(at), watcher->wholes.boundary(at)});
    Observation& observation = watcher->observation;
    observation = {};
    if (run == nullptr) {
      observation.holding = Holding::gone;
    } else if (run->resident) {  // who shares a swapped page is not known
      // The kernel splits a huge page before it copies a part of it, and tells of a whole one whether its first part is
      // mapped once (do_huge_pmd_wp_page in mm/huge_memory.c, pagemap_pmd_range in fs/proc/task_mmu.c).
      observation.merged = run->huge && run->exclusive && was_small;
      observation.whole = run->huge && !observation.merged;
      observation.holding = run->exclusive && !observation.whole ? Holding::alone : Holding::with_others;
      if (mark == nullptr) continue;
      observation.wrote = run->marked ? Wrote::no : Wrote::yes;
      observation.marked_s = mark->since_s;
    }
  }
  return end;
}

SharingRound::Observation SharingRound::observation_of(Member member) const {
  return by_member_[member] == nullptr ? Observation{} : by_member_[member]->observation;
}

SharingRound::HolderClasses SharingRound::classify(const Group& group) const {
  HolderClasses classes;
  for (const Member member : group.holders) {
    const Observation observation = observation_of(member);
    if (observation.holding == Holding::gone)
      classes.gone.push_back(member);
    else if (observation.wrote == Wrote::yes || (observation.merged && group.holders.size() > 1))
      classes.wrote.push_back(member);
    else if (observation.holding == Holding::alone)
      classes.alone.push_back(member);
    else
      (observation.holding == Holding::with_others ? classes.with_others : classes.not_walked).push_back(member);
  }
  return classes;
}

// A process that wrote and then forked shares its own copy with those children, and the old page with no process.
void SharingRound::classify_by_children(const Group& group, HolderClasses& classes, Outcome& outcome) const {
  for (std::size_t i = 0; i < classes.wrote.size();) {
    const Member writer = classes.wrote[i];
    const Observation& observed = by_member_[writer]->observation;
    const double since_s = observed.wrote == Wrote::yes ? observed.marked_s : sharing_.processes_[writer].last_walk_s;
    const auto follows = [&](Member member) {
      const PageSharing::Process& process = sharing_.processes_[member];
      return process.parent == writer && process.born_s > since_s;
    };
    Group own{.holders = {writer}, .missing = {}, .shared_s = group.shared_s, .left_s = PageSharing::kNobody};
    const auto has_the_old = [&](Member member) {  // it was forked before the writer wrote
      return observation_of(member).holding == Holding::alone && kept_its_page(member);
    };
    if (observed.holding == Holding::with_others)
      for (std::vector<Member>* members : {&classes.with_others, &classes.not_walked, &classes.alone}) {
        const auto first = std::stable_partition(
            members->begin(), members->end(), [&](Member member) { return !follows(member) || has_the_old(member); });
        own.holders.insert(own.holders.end(), first, members->end());
        members->erase(first, members->end());
      }
    if (own.holders.size() == 1) {
      ++i;
      continue;
    }
    const bool alone_before = own.holders.size() == group.holders.size() && group.left_s == PageSharing::kNobody;
    outcome.transitions.emplace_back(writer, alone_before ? PageTransition::reused : PageTransition::copied);
    if (!alone_before) classes.copied.push_back(writer);
    std::ranges::sort(own.holders);
    outcome.groups.push_back(std::move(own));
    classes.wrote.erase(classes.wrote.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

// One is alone, and the others share a page: they may be a process that copied the page and the children that it forked
// after that. So it is where the one that is alone cannot have copied.
bool SharingRound::classify_by_copier(const Group& group, HolderClasses& classes, Outcome& outcome) const {
  if (classes.alone.size() != 1 || classes.with_others.empty()) return false;
  const Member alone = classes.alone.front();
  if (observation_of(alone).wrote != Wrote::no && by_member_[alone]->copies_left > 0) return false;
  std::vector<Member> others = classes.with_others;
  others.insert(others.end(), classes.not_walked.begin(), classes.not_walked.end());
  std::ranges::sort(others);
  const Member copier = others.front();  // numbered by birth
  const Observation observation = observation_of(copier);
  const bool may_be = observation.holding == Holding::with_others ||
                      (observation.holding == Holding::not_walked &&
                       (observation_of(alone).wrote == Wrote::no || kept_its_page(alone)));
  if (others.size() < 2 || !may_be || observation.wrote == Wrote::no || observation.whole) return false;
  const bool all_follow = std::all_of(others.begin() + 1, others.end(), [&](Member member) {
    const PageSharing::Process& process = sharing_.processes_[member];
    return process.parent == copier && process.born_s > sharing_.processes_[copier].last_walk_s;
  });
  if (!all_follow) return false;
  outcome.transitions.emplace_back(copier, PageTransition::copied);
  outcome.groups.push_back(
      {.holders = std::move(others), .missing = {}, .shared_s = group.shared_s, .left_s = PageSharing::kNobody});
  classes.copied.push_back(copier);
  classes.with_others.clear();
  classes.not_walked.clear();
  classes.sole_holder = alone;
  classes.alone.clear();
  return true;
}

// Whether one is alone, and was walked after all that were seen to share the page: they may have copied it in
// between. They are its children, which write while it waits for them; where it is one of the children, it copied.
bool SharingRound::is_alone_since(const HolderClasses& classes) const {
  if (classes.alone.size() != 1 || classes.with_others.empty()) return false;
  const Member alone = classes.alone.front();
  return std::ranges::all_of(classes.with_others, [&](Member member) {
    return member > alone && by_member_[member]->walked_s < by_member_[alone]->walked_s;
  });
}

// Holders that have a page of their own now, and are not known to have written: at most one of them, the sole
// holder, can have the old one.
void SharingRound::settle_alone(HolderClasses& classes, Outcome& outcome) const {
  if (classes.alone.empty()) return;
  const std::size_t others = classes.with_others.size() + classes.not_walked.size();
  if ((classes.alone.size() == 1 && others == 0) ||
      is_alone_since(classes)) {  // the next walk tells what the others did
    classes.sole_holder = classes.alone.front();
    classes.alone.clear();
    return;
  }
  // Two or more have a page each, so at least one copied: not those who kept theirs.
  std::vector<Member> kept;
  if (classes.alone.size() > 1)
    std::ranges::copy_if(classes.alone, std::back_inserter(kept), [&](Member member) { return kept_its_page(member); });
  const auto did_not_write = [&](Member member) {
    if (kept.empty()) return observation_of(member).wrote == Wrote::no;
    return member == kept.front() || (observation_of(member).wrote == Wrote::no &&
                                      !is_marked_later(member, sharing_.processes_[kept.front()].last_walk_s));
  };
  if (kept.size() > 1) {  // the others' are copies that were made before they were forked
    const std::vector<Member> of_a_copy(kept.begin() + 1, kept.end());
    outcome.add(of_a_copy, PageTransition::copied_by_relatives);
    std::erase_if(classes.alone, [&](Member member) { return std::ranges::binary_search(of_a_copy, member); });
  }
  const auto has_it_whole = [&](Member member) { return observation_of(member).whole; };
  const bool shared_by_others = !classes.with_others.empty() && others >= 2;
  const bool one_did_not_write = !shared_by_others && std::ranges::count_if(classes.alone, did_not_write) == 1;
  if (one_did_not_write) {
    classes.sole_holder = *std::ranges::find_if(classes.alone, did_not_write);
    std::erase(classes.alone, *classes.sole_holder);
  }
  if (one_did_not_write || shared_by_others || std::ranges::any_of(classes.with_others, has_it_whole)) {
    for (const Member member : classes.alone)
      if (by_member_[member]->copies_left > 0) outcome.guessed.push_back(member);
    outcome.add(classes.alone, PageTransition::copied);
    classes.copied.insert(classes.copied.end(), classes.alone.begin(), classes.alone.end());
  } else {
    guess_alone(classes, outcome);
  }
  classes.alone.clear();
}

// Children first: a parent mostly waits for them. A process that took no faults has not written.
void SharingRound::guess_alone(HolderClasses& classes, Outcome& outcome) const {
  const bool all_may = classes.with_others.size() + classes.not_walked.size() > 0;
  std::size_t to_copy = classes.alone.size() - (all_may ? 0 : 1);
  std::vector<Member> left;
  std::ranges::reverse(classes.alone);
  for (const Member member : classes.alone) {
    if (to_copy == 0 || by_member_[member]->copies_left == 0) {
      if (to_copy > 0) outcome.refused.push_back(member);
      left.push_back(member);
      continue;
    }
    --to_copy;
    outcome.transitions.emplace_back(member, PageTransition::copied);
    outcome.guessed.push_back(member);
    classes.copied.push_back(member);
  }
  if (left.empty()) return;
  classes.sole_holder = left.back();
  left.pop_back();
  outcome.add(left, PageTransition::left_by_relatives);
}

// No member holds the page any more, and one that held it has left: the last writer copied if it is likely to have
// written before that. Both lie between the last time that the page is known to have been shared and now.
bool SharingRound::wrote_before_the_end(const Group& group, const HolderClasses& classes) const {
  const double left_s = classes.gone.empty() ? group.left_s : time_s_;
  double shared_s = group.shared_s;
  for (const Member member : classes.wrote) shared_s = std::max(shared_s, sharing_.processes_[member].last_walk_s);
  return left_s - shared_s > time_s_ - left_s;
}

void SharingRound::settle_writers(const Group& group, const HolderClasses& classes, Outcome& outcome) const {
  if (classes.wrote.empty()) return;
  std::vector<Member> copied = classes.wrote;
  const bool somebody_left = !classes.gone.empty() || group.left_s != PageSharing::kNobody;
  if (classes.stay().empty() && !(somebody_left && wrote_before_the_end(group, classes))) {
    // Of each page one was the last: likely the same one, the oldest where nothing tells.
    const auto last = std::ranges::max_element(copied, {}, [&](Member member) { return by_member_[member]->wrote_s; });
    outcome.transitions.emplace_back(*last, PageTransition::reused);
    copied.erase(last);
  }
  outcome.add(copied, PageTransition::copied);
}

// Whether it cannot have copied, as it took no faults or has not written since its last walk. What one that forks
// shared at that walk may have been a copy, with its children.
bool SharingRound::kept_its_page(Member member) const {
  const Watcher* const watcher = by_member_[member];
  return watcher != nullptr && !sharing_.processes_[member].has_forked && !watcher->observation.merged &&
         (watcher->observation.wrote == Wrote::no || watcher->copies_left == 0);
}

// Whether it is marked since then only: what it shared at that walk may have been its copy, with its children.
bool SharingRound::is_marked_later(Member member, double shared_s) const {
  return sharing_.processes_[member].has_forked && observation_of(member).marked_s > shared_s;
}

bool SharingRound::may_share(Member member) const {
  const Holding holding = observation_of(member).holding;
  return holding == Holding::not_walked || holding == Holding::with_others;
}

// Of those that hold it no more: the ones that a process forked after it shared the page with the one that holds it
// alone. They got what it had made of the page by then.
std::vector<SharingRound::Member> SharingRound::followers(const Group& group, Member parent) const {
  std::vector<Member> members;
  for (const Member member : group.missing) {
    if (may_share(member) && sharing_.processes_[member].parent == parent &&
        member > group.pending->member)  // numbered by birth
      members.push_back(member);
  }
  return members;
}

// Those who did not write have the old page, so who seemed to be left alone with it copied.
void SharingRound::give_back(Group& group, std::vector<Member> unwritten, Outcome& outcome) {
  outcome.transitions.emplace_back(group.pending->member, PageTransition::copied);
  group.pending.reset();
  std::vector<Member> of_the_copy = std::exchange(group.holders, std::move(unwritten));
  if (of_the_copy.size() > 1)  // it has forked since
    outcome.groups.push_back(
        {.holders = std::move(of_the_copy), .missing = {}, .shared_s = group.shared_s, .left_s = PageSharing::kNobody});
  if (group.holders.size() > 1) return;
  if (group.missing.empty())
    outcome.transitions.emplace_back(group.holders.front(), PageTransition::copied_by_relatives);
  else
    group.pending = {.member = group.holders.front()};
}

// A missing member that still has a page there copied, as that page cannot be the old one; unless it did not write:
// then it has the old one, and the member that seemed to hold that alone copied. A member that shares a page, but
// cannot share it with a process that it forked since, did not write.
void SharingRound::take_missing(Group& group, const PageSharing::Groups& groups, Outcome& outcome) const {
  bool copied = false;
  const auto shares_another = [&](Member member) {  // with those that it forked since
    return std::ranges::any_of(groups, [&](const Group& other) {
      return std::ranges::binary_search(other.holders, member) &&
             std::ranges::any_of(other.holders, [&](Member holder) { return holder != member && may_share(holder); });
    });
  };
  std::vector<Member> unwritten, still_missing;
  const auto share_a_copy = [&](Member parent, std::vector<Member> with) {
    copied = true;
    outcome.transitions.emplace_back(parent, PageTransition::copied);
    with.insert(std::ranges::lower_bound(with, parent), parent);
    for (std::vector<Member>* members : {&group.missing, &still_missing})
      std::erase_if(*members, [&](Member member) { return std::ranges::count(with, member) > 0; });
    outcome.groups.push_back(
        {.holders = std::move(with), .missing = {}, .shared_s = group.shared_s, .left_s = PageSharing::kNobody});
  };
  while (!group.missing.empty()) {
    const Member member = group.missing.front();
    const Observation observation = observation_of(member);
    const bool pending_kept = group.pending && group.pending->kept;
    const bool shares = observation.holding == Holding::with_others;
    const bool marked_later = pending_kept && is_marked_later(member, group.pending->shared_s);
    const bool is_unwritten = (observation.wrote == Wrote::no && !marked_later) || observation.whole;
    const bool shares_old = shares && !(pending_kept && shares_another(member));
    const std::vector<Member> forked =
        group.pending && shares && !is_unwritten ? followers(group, member) : std::vector<Member>{};
    if (!forked.empty()) {
      share_a_copy(member, forked);
      continue;
    }
    group.missing.erase(group.missing.begin());
    if (observation.holding == Holding::not_walked) still_missing.push_back(member);
    if (!shares && observation.holding != Holding::alone) continue;
    // It cannot have copied: it has what its parent copied before it forked it. If that is known not to hold any such
    // page, it has copied once more since.
    const std::optional<Member> parent = sharing_.processes_[member].parent;
    const bool cannot_copy =
        by_member_[member]->copies_left == 0 && observation.wrote == Wrote::not_known && !observation.merged;
    const bool is_of_gone_parent = parent && std::ranges::count(group.holders, *parent) == 0;
    const bool has_kept = is_unwritten || (cannot_copy && parent && !shares);
    const bool is_parents = cannot_copy || (group.pending && member > group.pending->member && shares_old &&
                                            observation.wrote != Wrote::yes);
    if (is_parents && parent && std::ranges::count(still_missing, *parent) > 0) {
      share_a_copy(*parent, {member});
    } else if (is_of_gone_parent && (pending_kept ? has_kept : cannot_copy && !shares && !group.pending)) {
      copied = copied || pending_kept;  // by neither of the two, so before this one was forked
      outcome.transitions.emplace_back(*parent, PageTransition::copied);
      outcome.transitions.emplace_back(member, PageTransition::copied_by_relatives);
      for (std::vector<Member>* members : {&group.missing, &still_missing}) std::erase(*members, *parent);
    } else if (group.pending && (has_kept || (shares_old && observation.wrote == Wrote::not_known))) {
      unwritten.push_back(member);
    } else {
      copied = true;
      outcome.transitions.emplace_back(member, PageTransition::copied);
      if (by_member_[member]->copies_left > 0) outcome.guessed.push_back(member);
    }
  }
  group.missing = std::move(still_missing);
  if (!unwritten.empty()) give_back(group, std::move(unwritten), outcome);
  if (!group.pending || !(copied || group.missing.empty())) return;
  outcome.transitions.emplace_back(group.pending->member,
                                   copied ? PageTransition::copied_by_relatives : PageTransition::left_by_relatives);
  group.pending.reset();
}

void SharingRound::resolve(const Group& group, const PageSharing::Groups& groups, Outcome& outcome) const {
  Group after = group;
  take_missing(after, groups, outcome);
  const bool was_shared = after.holders.size() > 1 || after.left_s != PageSharing::kNobody;
  HolderClasses classes = classify(after);
  classify_by_children(after, classes, outcome);
  if (!classify_by_copier(after, classes, outcome)) settle_alone(classes, outcome);
  settle_writers(after, classes, outcome);

  after.holders = classes.stay();
  const std::size_t known_missing = after.missing.size();
  if (classes.sole_holder) {  // then those who seemed to share it do not: since their walk, or not walked
    for (const std::vector<Member>* members : {&classes.with_others, &classes.not_walked})
      after.missing.insert(after.missing.end(), members->begin(), members->end());
    std::ranges::sort(after.missing);
  }
  for (const Member member : classes.gone) {
    after.left_s = time_s_;
    after.shared_s = std::max(after.shared_s, sharing_.processes_[member].last_walk_s);
  }
  if (after.holders.size() == 1 && was_shared) {
    const Member last = after.holders.front();
    const bool others_copied = !classes.wrote.empty() || !classes.copied.empty();
    if (!others_copied && after.missing.size() > known_missing) {
      after.pending = {.member = last, .kept = kept_its_page(last), .shared_s = sharing_.processes_[last].last_walk_s};
      after.left_s = PageSharing::kNobody;
    } else if (others_copied || observation_of(last).holding != Holding::not_walked) {
      // Until it is walked it may turn out to have copied before the others left.
      outcome.transitions.emplace_back(
          last, others_copied ? PageTransition::copied_by_relatives : PageTransition::left_by_relatives);
      after.left_s = PageSharing::kNobody;
    }
  } else if (classes.not_walked.empty()) {
    after.left_s = PageSharing::kNobody;
  }
  if (!after.holders.empty() || !after.missing.empty()) outcome.groups.push_back(std::move(after));
}

void SharingRound::take(Outcome outcome, std::uint64_t start, std::uint64_t end,
                        IntervalMap<PageSharing::Groups>& pages) {
  for (const auto& [member, transition] : outcome.transitions) {
    std::vector<TransitionRange>& ranges = transitions_[member];
    const bool guessed = transition == PageTransition::copied && std::ranges::count(outcome.guessed, member) > 0;
    if (!ranges.empty() && ranges.back().end == start && ranges.back().transition == transition &&
        ranges.back().doubtful == guessed)
      ranges.back().end = end;
    else
      ranges.push_back({start, end, transition, guessed});
    // What it wrote unseen its next walk must not report once more.
    if (transition == PageTransition::copied && by_member_[member] == nullptr) {
      sharing_.processes_[member].marked_s.erase(start, end);
      sharing_.processes_[member].copies_unseen += (end - start) / sharing_.page_bytes_;
    }
  }
  const std::uint64_t pages_here = (end - start) / sharing_.page_bytes_;
  for (const Member member : outcome.guessed) {
    by_member_[member]->copies_left -= pages_here;
    by_member_[member]->guessed_pages += pages_here;
  }
  for (const Member member : outcome.refused) by_member_[member]->refused_pages += pages_here;
  for (const auto& watcher : watchers_)
    if (watcher->observation.wrote == Wrote::yes) watcher->rewritten.push_back({start, end});
  if (!outcome.groups.empty()) pages.assign(start, end, std::move(outcome.groups));
}

// A guess is in doubt where the faults did not suffice for much of what the process may have copied.
void SharingRound::mark_doubtful() {
  for (const auto& watcher : watchers_)
    if (4 * watcher->refused_pages <= watcher->guessed_pages)
      for (TransitionRange& range : transitions_[watcher->member]) range.doubtful = false;
}

std::vector<std::vector<TransitionRange>> SharingRound::play() {
  // Whether resolve() would make the same group of this one: all who hold the page share it as before, or one has it
  // alone as before, and nothing is left to be found out.
  const auto stays_as_it_is = [&](const Group& group) {
    if (!group.missing.empty() || group.pending || group.left_s != PageSharing::kNobody) return false;
    return std::ranges::all_of(group.holders, [&](Member member) {
      const Observation observation = observation_of(member);
      if (observation.wrote == Wrote::yes || observation.merged) return false;
      return observation.holding == Holding::alone ? group.holders.size() == 1 : observation.holding != Holding::gone;
    });
  };
  IntervalMap<PageSharing::Groups> pages;
  for (auto left = sharing_.pages_.take(); !left.empty();) {
    auto interval = left.extract(left.begin());
    const PageSharing::Groups& groups = interval.mapped().value;
    const std::uint64_t all_end = interval.mapped().end;
    std::uint64_t same_from = interval.key();
    for (std::uint64_t at = same_from; at < all_end;) {
      std::uint64_t end = observe_at(at, all_end);
      if (std::ranges::all_of(groups, stays_as_it_is)) {
        take({}, at, end, pages);
        at = end;
        continue;
      }
      Outcome outcome;
      for (const Group& group : groups) resolve(group, groups, outcome);
      keep_each_once(outcome.guessed);  // a member may be in two groups, of which it can have copied one
      keep_each_once(outcome.transitions);
      for (const Member member : outcome.guessed) {
        const std::uint64_t most_pages = by_member_[member]->copies_left;
        if (most_pages < (end - at) / sharing_.page_bytes_) end = at + most_pages * sharing_.page_bytes_;
      }
      pages.assign(same_from, at, groups);
      take(std::move(outcome), at, end, pages);
      same_from = at = end;
    }
    if (same_from == interval.key())
      pages.append(std::move(interval));
    else
      pages.assign(same_from, all_end, groups);
  }
  sharing_.pages_ = std::move(pages);
  mark_doubtful();
  for (const auto& watcher : watchers_) {
    PageSharing::Process& process = sharing_.processes_[watcher->member];
    process.last_walk_s = time_s_;
    process.copies_unseen = 0;
    process.whole.emplace();
    for (const AnonymousRun& run : watcher->holding)
      if (run.huge) process.whole->assign(run.start, run.end, true);
    for (const Range& range : watcher->rewritten) process.marked_s.erase(range.start, range.end);
  }
  return std::move(transitions_);
}

}  // namespace whyrss
