// Replay's part about fork families: who joins and leaves, which walks are of one moment, and what the pages that
// forks made shared came to between two of those.
#include <algorithm>
#include <cmath>
#include <limits>

#include "attribute/copy_blame.h"
#include "attribute/range_cursor.h"
#include "decode/page_frames.h"
#include "decode/touch_records.h"
#include "replay/replay_process.h"

namespace whyrss {
namespace {

using trace::RecordKind;

// The collector walks a family one after another, each walk followed by a reading of smaps_rollup, and does nothing
// else in between; both take some 15 ms per GiB and have the machine's other work beside them.
constexpr std::uint64_t kSameMomentNs = 250'000'000;
// What any process copies of others' pages at its start.
constexpr std::int64_t kLittleDoubtBytes = 1 << 20;

}  // namespace

void Replay::add_tracked(Process& process, Bytes payload) {
  ByteReader reader(payload);
  trace::TrackedHeader header{};
  if (!reader.take(header)) return;
  Process::Tracked tracked{.time_ns = header.end_ns, .runs = {}};
  for (std::uint32_t i = 0; i < header.run_count; ++i) {
    trace::PageRun run{};
    if (!reader.take(run)) return;
    tracked.runs.push_back(run);
  }
  process.tracked.push_back(std::move(tracked));
}

void Replay::join_family(Process& child, Process* parent, std::uint64_t time_ns) {
  const double time_s = seconds_since(settings_.origin_ns, time_ns);
  std::shared_ptr<Family> family = parent == nullptr ? nullptr : parent->family;
  std::optional<PageSharing::Member> elder = family == nullptr ? std::nullopt : std::optional(parent->member);
  if (family == nullptr) {
    family = std::make_shared<Family>(Family{.sharing = PageSharing(child.page_bytes), .members = {parent}});
    elder = family->sharing.add(std::nullopt, time_s);
    if (parent != nullptr) {
      parent->family = family;
      parent->member = *elder;
      parent->space.follow_dropped(true);
    }
  }
  child.family = family;
  child.member = family->sharing.add(elder, time_s);
  child.space.follow_dropped(true);
  family->members.push_back(&child);
}

void Replay::leave_family(Process& process, std::uint64_t time_ns) {
  if (process.family == nullptr) return;
  process.family->sharing.leave(process.member, seconds_since(settings_.origin_ns, time_ns));
  process.family->members[process.member] = nullptr;
  process.family.reset();
  process.ahead.reset();
  process.transitions.clear();
}

// Those that were walked with `process`, in the order of their walks, `process` first.
std::vector<Replay::Process*> Replay::walked_together(Process& process, const Walk& walk) {
  // What each asked for itself is no round, however near in time: one of them may have ended since its own walk.
  if (walk.trigger == trace::WalkTrigger::request || walk.trigger == trace::WalkTrigger::exit) return {&process};
  std::vector<Process*> others;
  for (Process* member : process.family->members) {
    const bool comes = member != nullptr && member != &process && member->next_walk < member->walks.size() &&
                       member->image != nullptr && !member->exec_pending && !member->ahead;
    if (comes && member->walks[member->next_walk].trigger == walk.trigger) others.push_back(member);
  }
  const auto next = [](const Process* member) -> const Walk& { return member->walks[member->next_walk]; };
  std::ranges::sort(others, {}, [&](const Process* member) { return next(member).begin_ns; });
  std::vector<Process*> together{&process};
  std::uint64_t last_ns = walk.time_ns;
  // A second walk of one process belongs to the next round.
  std::uint64_t again_ns = process.next_walk < process.walks.size() ? next(&process).begin_ns : UINT64_MAX;
  for (Process* member : others) {
    const Walk& theirs = next(member);
    if (theirs.begin_ns > last_ns + kSameMomentNs || theirs.begin_ns >= again_ns) break;
    together.push_back(member);
    last_ns = std::max(last_ns, theirs.time_ns);
    if (member->next_walk + 1 < member->walks.size())
      again_ns = std::min(again_ns, member->walks[member->next_walk + 1].begin_ns);
  }
  return together;
}

// Of a process that was killed, or was given up waiting for: copies that no walk saw, by its faults until the last
// poll. Without sampled faults nothing tells copies from new memory that is gone again.
std::uint64_t Replay::copies_after_last_walk(Process& process) const {
  constexpr std::uint64_t kFewPages = 256;  // what an orderly end takes
  const bool knows_before = process.has_last_walk || process.account->born_by_fork;
  if (!knows_before || process.polls.empty() || !process.account->touch.armed) return 0;
  const trace::Poll& last = process.polls.back();
  const auto after = std::ranges::upper_bound(process.polls, process.last_walk_ns, {}, &trace::Poll::time_ns);
  const trace::Poll& before = after == process.polls.begin() ? process.polls.front() : *std::prev(after);
  const std::uint64_t faults = last.minor_faults - std::min(last.minor_faults, process.last_faults);
  const std::uint64_t grown = last.rss_pages - std::min(last.rss_pages, before.rss_pages);
  const std::uint64_t copies =
      estimated_copies(process).value_or(std::min(faults - std::min(faults, grown), sampled_copies(process)));
  return copies < kFewPages ? 0 : copies;
}

// Those of `copies`, which no walk saw, that it had made by then.
void Replay::report_copies(Process& process, std::uint64_t copies, std::uint64_t until_ns) {
  double all = 0, before = 0;
  std::optional<std::uint64_t> first;
  for (const TouchSample& sample : copies_since_walk(process)) {
    first = std::min(first.value_or(sample.page), sample.page);
    all += sample.weight;
    if (sample.time_ns < until_ns) before += sample.weight;
  }
  if (all > 0) copies = static_cast<std::uint64_t>(static_cast<double>(copies) * before / all);
  if (copies <= process.reported_copies) return;
  Family& family = *process.family;
  const auto transitions = family.sharing.copy(process.member, copies - process.reported_copies, first.value_or(0));
  process.reported_copies = copies;
  for (std::size_t i = 0; i < transitions.size(); ++i)
    if (family.members[i] != nullptr)
      add_transitions(*family.members[i], transitions[i], *process.account->ended_s, true);
}

// One after another. What is still there when one of them ends has copied before that what the one that ended had too.
void Replay::leave_ended(Family& family, std::vector<Process*> ended) {
  std::ranges::stable_sort(ended, {}, [](const Process* member) { return *member->account->ended_s; });
  std::vector<std::uint64_t> copies;
  for (Process* member : ended) copies.push_back(member->exec_pending ? 0 : copies_after_last_walk(*member));
  for (std::size_t i = 0; i < ended.size(); ++i) {
    const double ended_s = *ended[i]->account->ended_s;
    const std::uint64_t ended_ns = time_ns_at(settings_.origin_ns, ended_s);
    for (std::size_t other = i + 1; other < ended.size(); ++other)
      if (copies[other] > 0) report_copies(*ended[other], copies[other], ended_ns);
    if (copies[i] > 0) report_copies(*ended[i], copies[i], std::numeric_limits<std::uint64_t>::max());
    family.sharing.leave(ended[i]->member, ended_s);
  }
}

void Replay::walk_family(Process& process, const Walk& walk, const WalkedPages& pages) {
  Family& family = *process.family;
  const double time_s = seconds_since(settings_.origin_ns, walk.time_ns);
  std::vector<Process*> ended;
  for (Process* member : family.members) {
    if (member == nullptr || member == &process || family.sharing.has_left(member->member)) continue;
    if (member->account->ended_s.value_or(time_s) < time_s)
      ended.push_back(member);
    else if (member->exec_pending)
      family.sharing.leave(member->member, time_s);
  }
  leave_ended(family, std::move(ended));
  std::vector<Process*> together = walked_together(process, walk);
  std::erase_if(together, [&](Process* member) {
    if (member == &process) return false;
    member->ahead = read_walk(payload_of(*member, *member->walks[member->next_walk].frame));
    if (member->ahead && !member->ahead->partial && !member->ahead->smaps_only) return false;
    member->ahead.reset();
    return true;
  });
  std::vector<PageSharing::Walk> observed;
  for (Process* member : together) {
    const Walk& theirs = member == &process ? walk : member->walks[member->next_walk];
    const WalkedPages& seen = member == &process ? pages : *member->ahead;
    inherit_from_walk(*member, theirs, seen);
    take_tracked(*member, theirs.begin_ns);
    member->forked_in_walk =
        family.sharing.has_forked_since(member->member, seconds_since(settings_.origin_ns, theirs.begin_ns));
    if (member->forked_in_walk) {
      family.sharing.skip_walk(member->member, seen.anonymous, time_s);
      continue;
    }
    observed.push_back({.member = member->member,
                        .runs = &seen.anonymous,
                        .most_copies = most_copies(*member, theirs, seen),
                        .wrote_s = when_faulted_s(*member, theirs.time_ns),
                        .walked_s = seconds_since(settings_.origin_ns, theirs.begin_ns)});
  }
  const auto transitions = family.sharing.observe(observed, time_s);
  for (std::size_t i = 0; i < transitions.size(); ++i) {
    Process* member = family.members[i];
    if (member == nullptr || transitions[i].empty()) continue;
    if (member == &process || member->ahead)
      member->transitions = transitions[i];
    else
      add_transitions(*member, transitions[i], time_s);
  }
}

// When it had taken half of its faults since its last walk, as polls have it.
double Replay::when_faulted_s(const Process& process, std::uint64_t until_ns) const {
  const auto time_of = &trace::Poll::time_ns;
  const auto first = std::ranges::lower_bound(process.polls, process.last_walk_ns, {}, time_of);
  const auto last = std::ranges::upper_bound(process.polls, until_ns, {}, time_of);
  if (first >= last) return seconds_since(settings_.origin_ns, until_ns);
  const std::uint64_t before = process.last_faults, all = std::prev(last)->minor_faults;
  const std::uint64_t half = before + (all - std::min(all, before)) / 2;
  const auto found = std::find_if(first, last, [&](const trace::Poll& poll) { return poll.minor_faults >= half; });
  return seconds_since(settings_.origin_ns, found == last ? until_ns : found->time_ns);
}

// Pages that the process may have copied since its last walk: each copy is a fault, and so is each new page.
std::uint64_t Replay::most_copies(Process& process, const Walk& walk, const WalkedPages& seen) {
  // How many faults an older process took since the fork is not known.
  if (!process.has_last_walk && !process.account->born_by_fork) return 0;
  const std::uint64_t faults = seen.minor_faults - std::min(seen.minor_faults, process.last_faults);
  const OwnPages own = own_pages_of(process, seen);
  const auto growth = [](std::uint64_t now, std::uint64_t before) { return now - std::min(now, before); };
  const std::uint64_t grown =
      std::min(growth(own.small, process.last_own.small), growth(own.all, process.last_own.all));
  return std::min(faults - std::min(faults, grown), most_sampled_copies(process, walk.time_ns, faults));
}

// Since its last walk, of the faults that are replayed: those that may have copied a page.
std::vector<TouchSample> Replay::copies_since_walk(const Process& process) {
  constexpr std::uint64_t kEver = std::numeric_limits<std::uint64_t>::max();
  return process.space.touched().copy_candidates(0, kEver, process.last_walk_ns, kEver);
}

std::uint64_t Replay::sampled_copies(const Process& process) {
  double copies = 0;
  for (const TouchSample& sample : copies_since_walk(process)) copies += sample.weight;
  return static_cast<std::uint64_t>(copies);
}

// What a child has copied at its end beyond what the walks reported, where that state was estimated; else nothing.
std::optional<std::uint64_t> Replay::estimated_copies(const Process& process) {
  const ProcessAccount& account = *process.account;
  if (!account.born_by_fork || account.accounts.empty() || !account.accounts.back().estimated_from_s)
    return std::nullopt;
  const auto held = [](const Account& state) { return state.slices.sum_of(Cause::fork_cow).bytes; };
  std::int64_t seen = 0, reported = 0;
  for (const Account& state : account.accounts)
    if (!state.estimated_from_s) seen = held(state);
  for (const SharingChange& change : account.sharing) reported += change.copied_bytes;
  // Copies that it gave back are among those that were reported.
  const std::int64_t more = held(account.accounts.back()) - std::min(seen, reported);
  return static_cast<std::uint64_t>(std::max<std::int64_t>(more, 0)) / process.page_bytes;
}

// The same by faults sampled `until_ns`, on pages that were there and shared; those that no sample stands for may be
// copies as well. A walk that is read ahead has faults that are not replayed yet.
std::uint64_t Replay::most_sampled_copies(Process& process, std::uint64_t until_ns, std::uint64_t faults) {
  TouchFigures touch = process.account->touch;
  std::vector<TouchSample> ahead;
  for (std::size_t i = process.next_record; i < process.records.size(); ++i) {
    const EventRecord& record = process.records[i];
    if (record.time_ns > until_ns) break;
    if (record.kind != RecordKind::touch && record.kind != RecordKind::kernel_faults) continue;
    count_touch(record, touch);
    if (const auto sample = touch_sample(record); sample && process.space.may_copy(*sample)) ahead.push_back(*sample);
  }
  if (!touch.armed || touch.samples == 0) return std::numeric_limits<std::uint64_t>::max();
  const std::uint64_t sampled = counted_faults(touch) - std::min(counted_faults(touch), process.last_counted_faults);
  const double usual_weight = static_cast<double>(touch.faults) / static_cast<double>(touch.samples);
  double copies = 0, variance = usual_weight * usual_weight;
  std::vector<TouchSample> samples = copies_since_walk(process);
  samples.insert(samples.end(), ahead.begin(), ahead.end());
  for (const TouchSample& sample : samples) {
    copies += sample.weight;
    variance += static_cast<double>(sample.weight) * sample.weight;
  }
  constexpr double kErrors = 3;
  return static_cast<std::uint64_t>(copies + kErrors * std::sqrt(variance)) + faults - std::min(faults, sampled);
}

std::uint64_t Replay::counted_faults(const TouchFigures& touch) { return touch.faults + touch.counted_kernel_faults; }

// Of those that are replayed, the faults that came before then.
std::uint64_t Replay::counted_faults(const Process& process, std::uint64_t before_ns) {
  TouchFigures since;
  for (std::size_t i = process.next_record; i > 0 && process.records[i - 1].time_ns >= before_ns; --i)
    if (const EventRecord& record = process.records[i - 1];
        record.kind == RecordKind::touch || record.kind == RecordKind::kernel_faults)
      count_touch(record, since);
  const std::uint64_t all = counted_faults(process.account->touch);
  return all - std::min(all, counted_faults(since));
}

// A walk counts them at its end, and misses copies that were made while it went on: they are among the next one's.
std::uint64_t Replay::faults_before(const Process& process, const WalkedPages& pages) {
  const auto after = std::ranges::upper_bound(process.polls, pages.begin_ns, {}, &trace::Poll::time_ns);
  const std::uint64_t polled = after == process.polls.begin() ? 0 : std::prev(after)->minor_faults;
  return polled >= process.last_faults ? std::min(polled, pages.minor_faults) : pages.minor_faults;
}

// Private memory that it did not inherit. A small page took a fault, unless it was a part of a 2 MiB page before.
Replay::OwnPages Replay::own_pages_of(const Process& process, const WalkedPages& seen) {
  const std::vector<ForkRange> inherited = process.space.inheritance().ranges();
  RangeCursor<ForkRange> forks(inherited);
  OwnPages own;
  for (const AnonymousRun& run : seen.anonymous) {
    for (std::uint64_t at = run.start; at < run.end;) {
      const ForkRange* fork = forks.at(at);
      const std::uint64_t end = std::min(run.end, forks.boundary(at));
      if (fork == nullptr && run.resident) {
        own.all += (end - at) / process.page_bytes;
        if (!run.huge) own.small += (end - at) / process.page_bytes;
      }
      at = end;
    }
  }
  return own;
}

// What the child did not tell, or not all of it.
void Replay::inherit_from_walk(Process& process, const Walk& walk, const WalkedPages& pages) {
  if (!process.needs_inheritance_from_walk) return;
  process.needs_inheritance_from_walk = false;
  process.account->notes.emplace_back("what it inherited was not recorded: taken from its first page walk");
  const double time_s = seconds_since(settings_.origin_ns, walk.time_ns);
  Inheritance& inheritance = process.space.inheritance();
  for (const AnonymousRun& run : pages.anonymous) {
    if (run.exclusive || !inheritance.within(run.start, run.end).empty()) continue;
    inheritance.add(run.start, run.end);
    process.family->sharing.share(process.member, run.start, run.end, time_s);
  }
}

void Replay::take_tracked(Process& process, std::uint64_t walk_ns) {
  for (; process.next_tracked < process.tracked.size(); ++process.next_tracked) {
    const Process::Tracked& tracked = process.tracked[process.next_tracked];
    if (tracked.time_ns >= walk_ns) return;  // that walk is where they were protected
    process.account->write_tracked = true;
    for (const trace::PageRun& run : tracked.runs) {
      const std::uint64_t most_pages = (std::numeric_limits<std::uint64_t>::max() - run.start) / process.page_bytes;
      if (run.start % process.page_bytes == 0 && run.page_count <= most_pages)
        process.family->sharing.mark(process.member, run.start, run.start + run.page_count * process.page_bytes);
    }
  }
}

void Replay::observe_sharing(Process& process, const Walk& walk, const WalkedPages& pages, bool seen_ahead) {
  if (process.family != nullptr && !seen_ahead) walk_family(process, walk, pages);
  process.space.inheritance().keep(pages.anonymous);
  add_transitions(process, std::exchange(process.transitions, {}), seconds_since(settings_.origin_ns, walk.time_ns));
  if (std::exchange(process.forked_in_walk, false)) return;
  process.last_faults = faults_before(process, pages);
  process.last_counted_faults = counted_faults(process, pages.begin_ns);
  process.last_walk_ns = pages.begin_ns;
  process.last_own = own_pages_of(process, pages);
  process.has_last_walk = true;
}

void Replay::finish_families() {
  const double last_s = seconds_since(settings_.origin_ns, last_ns_);
  for (const auto& process : processes_) {
    if (process->family == nullptr || process->family->finished) continue;
    Family& family = *process->family;
    family.finished = true;
    std::vector<Process*> gone;
    for (Process* member : family.members)
      if (member != nullptr && member->account->ended_s && !family.sharing.has_left(member->member))
        gone.push_back(member);
    leave_ended(family, std::move(gone));
    std::vector<bool> ended;
    for (const Process* member : family.members) ended.push_back(member == nullptr || member->account->ended_s);
    const auto transitions = family.sharing.finish(ended);
    for (std::size_t i = 0; i < transitions.size(); ++i) {
      if (family.members[i] == nullptr) continue;
      const auto& observed = family.members[i]->account->accounts;  // the last one has shown it
      add_transitions(*family.members[i], transitions[i], observed.empty() ? last_s : observed.back().time_s);
    }
  }
}

void Replay::add_transitions(Process& process, const std::vector<TransitionRange>& transitions, double time_s,
                             bool estimate) {
  if (transitions.empty()) return;
  Inheritance& inheritance = process.space.inheritance();
  SharingChange change{.time_s = time_s, .estimate = estimate};
  std::vector<Range> inherited, own;  // that it copied
  for (const TransitionRange& range : transitions) {
    const auto bytes = static_cast<std::int64_t>(range.end - range.start);
    switch (range.transition) {
      case PageTransition::copied: {
        change.copied_bytes += bytes;
        if (range.doubtful) change.doubtful_bytes += bytes;
        std::uint64_t at = range.start;
        for (const ForkRange& part : inheritance.within(range.start, range.end)) {
          if (part.start > at) own.push_back({at, part.start});
          inherited.push_back({part.start, part.end});
          at = part.end;
        }
        if (at < range.end) own.push_back({at, range.end});
        break;
      }
      case PageTransition::copied_by_relatives:
        change.copied_by_relatives_bytes += bytes;
        break;
      case PageTransition::left_by_relatives:
        change.left_by_relatives_bytes += bytes;
        break;
      case PageTransition::reused:
        change.reused_bytes += bytes;
        break;
    }
    const bool copied = range.transition == PageTransition::copied;
    inheritance.settle(range.start, range.end, copied ? ForkClass::copied : ForkClass::sole);
  }
  change.estimate |= change.doubtful_bytes > kLittleDoubtBytes;
  auto& copies = process.account->copies;
  const CopyBlame blame{.touched = process.space.touched(),
                        .page_bytes = process.page_bytes,
                        .time_s = time_s,
                        .small_blocks = &process.small.live()};
  if (!inherited.empty()) blame_copies(inherited, process.space.ancestor_owned(), blame, copies);
  if (!own.empty()) blame_copies(own, process.space.owned(), blame, copies);
  process.account->sharing.push_back(change);
}

}  // namespace whyrss
