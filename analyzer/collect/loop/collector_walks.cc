// The collector's walks of processes: when they are due, what each reads, what it may cost.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <nlohmann/json.hpp>
#include <utility>

#include "collect/loop/collector.h"
#include "support/clock.h"

namespace whyrss {
namespace {

using trace::WalkTrigger;

// smaps and its rollup hold the target's mmap lock for a whole VMA: 7 ms per GiB.
constexpr std::uint64_t kRollupPages = 512ULL * 1024 * 1024 / 4096;
constexpr std::uint64_t kRollupAlonePages = 64ULL * 1024 * 1024 / 4096;
constexpr std::uint64_t kQuickSmapsPages = 128ULL * 1024 * 1024 / 4096;

// A process that takes itself down is not walked while it does, so that its last walk shows what the
// program held. One that still lives after this long goes on (an embedded interpreter).
constexpr std::int64_t kTeardownNs = 2'000'000'000;

// Below these a walk is so small that it is left out, or needs no company.
constexpr std::uint64_t kSmapsPages = 16ULL * 1024 * 1024 / 4096;
constexpr std::uint64_t kWrittenPages = 8ULL * 1024 * 1024 / 4096;
constexpr std::uint64_t kTotalsPages = 4ULL * 1024 * 1024 / 4096;

// A pool of workers is forked, and ends, in one go: one walk after the last of them tells it all.
constexpr std::int64_t kGatherNs = 20'000'000;
constexpr std::int64_t kGatherLongestNs = 100'000'000;
// The fork of a large process takes its time, and a second round would walk them all again.
constexpr std::int64_t kGatherTrackedNs = 500'000'000;
constexpr std::int64_t kAskAgainNs = 100'000'000;

// Where some always move, all others are read for so much of a core: this part of what it costs.
constexpr std::int64_t kCompanyCosts = 33;

bool of_family(WalkTrigger trigger) { return trigger == WalkTrigger::fork || trigger == WalkTrigger::exit; }
// Whether `done` stands before that request. Both wrap.
bool is_before(std::uint32_t done, std::uint32_t request) { return static_cast<std::int32_t>(done - request) < 0; }

bool must_happen(WalkTrigger trigger) {
  return of_family(trigger) || trigger == WalkTrigger::start || trigger == WalkTrigger::request ||
         trigger == WalkTrigger::phase;
}

bool follows_growth(WalkTrigger trigger) {
  return trigger == WalkTrigger::growth || trigger == WalkTrigger::quiet || trigger == WalkTrigger::advise;
}

// A program that begins and ends phases all the time pays for walks with at most a twentieth of a core.
constexpr std::int64_t kPhaseCosts = 20;

}  // namespace

bool Collector::is_torn_down(const Followed& followed, std::int64_t now_ns) {
  return followed.teardown_ns != 0 && now_ns - followed.teardown_ns < kTeardownNs;
}

bool Collector::is_leaving(const Followed& followed) {
  return followed.exit_status.has_value() || is_torn_down(followed, monotonic_ns());
}

bool Collector::has_relatives(const Followed& followed) const {
  return std::ranges::any_of(followed_, [&](const auto& entry) {
    return &entry.second != &followed && entry.second.family == followed.family;
  });
}

void Collector::spend(std::int64_t cpu_ns, WalkTrigger trigger) {
  if (trigger == WalkTrigger::request || trigger == WalkTrigger::phase || trigger == WalkTrigger::limit)
    budget_.spend_beside(cpu_ns);
  else
    budget_.spend(cpu_ns, must_happen(trigger));
}

void Collector::walk_process(Followed& followed, WalkTrigger trigger, std::optional<WriteTracker::Huge> track) {
  ProcessFollow& process = *followed.process;
  const std::int64_t now_ns = monotonic_ns();
  const bool must = must_happen(trigger);
  const bool first = trigger == WalkTrigger::start;
  const bool leaving = trigger == WalkTrigger::exit && is_leaving(followed);
  const bool asked = trigger == WalkTrigger::request || leaving;
  const bool is_target = process.pid() == setup_.target;
  // Thousands of short programs must not cost more than what they do.
  if (first && !is_target && !budget_.allows_overdraft(now_ns)) return;
  trace::ProcessSlot* slot = followed.slot == trace::kNoSlot ? nullptr : &setup_.pool.view().slots[followed.slot];
  const std::int64_t live_bytes = slot == nullptr ? 0 : slot->live_bytes.load();
  if (slot != nullptr) process.note_live_bytes(live_bytes);
  const ForkCount forks = slot == nullptr ? ForkCount{} : ForkCount{&slot->forks, slot->forks.load()};
  if (std::exchange(followed.forks, forks.then) != forks.then) followed.forked_ns = now_ns;
  const bool may_have_child = followed.forked_ns != 0 && now_ns - followed.forked_ns < kChildSeenNs;
  const Relatives relatives = may_have_child || has_relatives(followed) ? Relatives::possible : Relatives::none;
  for (auto& [_, other] : followed_)
    if (&other != &followed && other.family == followed.family) other.process->notice_end();
  const std::int64_t cost_ns =
      process.walk(trigger, slot == nullptr ? 0 : slot->liveness.load(), relatives, track, forks);
  const WalkTrigger payer = asked ? WalkTrigger::request : trigger;
  spend(cost_ns, payer);
  if (slot != nullptr) {
    slot->walked_rss_pages.store(unmapped_.depends_on(process.key()) ? 0 : process.walked_rss_pages());
    slot->walked_minor_faults.store(static_cast<std::uint32_t>(process.walked_minor_faults()));
    slot->walked_live_kib.store(static_cast<std::uint32_t>(live_bytes / 1024));
    slot->walked_ms.store(static_cast<std::uint32_t>(now_ns / 1'000'000));
  }
  if (first || asked) process.write_status(trigger);
  if (first && !is_target) note_other_cgroup(process);
  if (first && is_target) {
    if (!process.has_smaps()) spend(process.write_smaps(trigger), trigger);
    return;
  }
  // A process without relatives is read where it rests: as it grows, its walks tell what is its own.
  const std::uint64_t most_pages = relatives == Relatives::possible ? kRollupPages : kRollupAlonePages;
  const bool affordable = process.rss_pages() < most_pages && process.wants_rollup(now_ns) &&
                          process.rss_pages() >= kTotalsPages && budget_.allows(now_ns, cost_ns * 2);
  const bool worth = process.rss_pages() >= kTotalsPages || relatives == Relatives::possible;
  if ((of_family(trigger) && !leaving) || (must ? worth : affordable)) spend(process.write_rollup(trigger), payer);
}

// Who has moved and rests is read, and so are the others, who may share pages with it: its copies move their PSS. Where
// the budget does not suffice for all at once, those come first that were not read for longest.
void Collector::read_plateaus(std::int64_t now_ns) {
  struct Reading {
    ProcessFollow* process;
    bool rests;
  };
  std::vector<Reading> due;
  for (auto& [key, followed] : followed_) {
    ProcessFollow& process = *followed.process;
    if (followed.has_ended || is_leaving(followed) || process.pid() <= 0 || !process.has_walk() ||
        process.rss_pages() < kTotalsPages)
      continue;
    due.push_back({&process, process.rollups().observe(process.poll_point(), followed_.size() == 1)});
  }
  if (std::ranges::any_of(due, &Reading::rests)) rested_ns_ = now_ns;
  std::erase_if(due, [&](const Reading& one) {
    const RollupPolicy& rollups = one.process->rollups();
    return !one.rests && (now_ns < next_company_ns_ || rollups.read_ns() >= rested_ns_ || !rollups.is_old(now_ns));
  });
  std::ranges::sort(due, {}, [](const Reading& one) { return one.process->rollups().read_ns(); });
  std::int64_t spent_ns = 0;
  bool with_company = false;
  for (const Reading& one : due) {
    if (!budget_.allows(now_ns, one.process->rollups().expected_cpu_ns(one.process->rss_pages()))) break;
    const std::int64_t cost_ns = one.process->write_rollup(WalkTrigger::quiet);
    budget_.spend(cost_ns, false);
    spent_ns += cost_ns;
    with_company |= !one.rests;
  }
  if (with_company) next_company_ns_ = now_ns + std::max(RollupPolicy::kGapNs, kCompanyCosts * spent_ns);
}

void Collector::read_unmapped() {
  std::vector<UnmappedReader::Process> living;
  for (const auto& [key, followed] : followed_) {
    const ProcessFollow& process = *followed.process;
    if (process.pid() > 0 && !followed.has_ended && !process.has_ended())
      living.push_back({key, process.pid(), process.born_ns()});
  }
  for (const auto& [key, files] : unmapped_.read(std::move(living)))
    followed_.at(key).process->write_unmapped(unmapped_payload(files));
  // They ask for a walk at their ends though their RSS has not moved: what is open then is read with it.
  for (const auto& [key, followed] : followed_)
    if (followed.slot != trace::kNoSlot && unmapped_.depends_on(key))
      setup_.pool.view().slots[followed.slot].walked_rss_pages.store(0);
}

// What the main process tells about its group is true for all in it.
void Collector::note_other_cgroup(ProcessFollow& process) {
  const auto main = by_pid_.find(setup_.target);
  if (main != by_pid_.end() && followed_.at(main->second).process->cgroup_name() == process.cgroup_name()) return;
  process.write_cgroup(false);
}

void Collector::serve_walk_requests() {
  const trace::PoolView pool = setup_.pool.view();
  bool drained = false;
  for (auto& [key, followed] : followed_) {
    if (followed.slot == trace::kNoSlot) continue;
    trace::ProcessSlot& slot = pool.slots[followed.slot];
    const std::uint32_t request = slot.walk_request.load(std::memory_order_acquire);
    if (request == followed.walk_served) continue;
    // A walk before this one may have taken long: events of the process since then decide how this one is made.
    if (!std::exchange(drained, true)) {
      drain(monotonic_ns(), {}, false);
      handle_process_events();
    }
    followed.walk_served = request;
    // Else who asked has given up waiting, and has done more since.
    const bool in_time = is_before(slot.walk_done.load(std::memory_order_acquire), request);
    if (!in_time && is_leaving(followed)) continue;
    ProcessFollow& process = *followed.process;
    bool exec = false;
    beat();
    if (in_time && unmapped_.depends_on(key)) read_unmapped();  // before the walk, whose moment is that of the request
    process.poll(exec);
    const WalkTrigger trigger = is_leaving(followed) ? WalkTrigger::exit
                                : in_time            ? WalkTrigger::request
                                                     : WalkTrigger::growth;
    walk_process(followed, trigger);
    // This also serves the pending walk for what the process had done before.
    const auto due = due_families_.find(followed.family);
    if (due != due_families_.end() && !must_happen(due->second.trigger) && !has_relatives(followed))
      due_families_.erase(due);
    if (!in_time) continue;
    // The whole of smaps, as a second opinion, only of the main process: its sums are in the rollup. And of those that
    // write to files, as nothing else tells what is not on disk yet.
    const bool writes_files = process.written_file_pages() >= kWrittenPages;
    const bool with_smaps = (process.pid() == setup_.target && process.rss_pages() >= kSmapsPages) || writes_files;
    const bool fast = process.rss_pages() < (writes_files ? kRollupPages : kQuickSmapsPages);
    if (with_smaps && fast) spend(process.write_smaps(trigger), WalkTrigger::request);
    if (std::exchange(asks_all_, false)) walk_moved(&followed);
    if (in_container_ && trigger == WalkTrigger::exit) store_before_namespace_ends(followed);
    std::uint32_t done = slot.walk_done.load(std::memory_order_relaxed);
    while (is_before(done, request) &&
           !slot.walk_done.compare_exchange_weak(done, request, std::memory_order_release)) {
    }
    syscall(SYS_futex, &slot.walk_done, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    if (with_smaps && !fast) spend(process.write_smaps(trigger), WalkTrigger::request);
  }
}

void Collector::store_all() {
  drain_.store_all_next();
  drain(monotonic_ns(), {}, false);
  for (auto& [_, followed] : followed_) followed.process->flush_polls();
}

// A reader is about to read the recording. A later walk may know more than the events that are stored: the reader
// leaves it out.
void Collector::serve_store_requests() {
  trace::PoolHeader& pool = *setup_.pool.view().header;
  const std::uint32_t request = pool.store_request.load(std::memory_order_acquire);
  if (request == pool.stored_request.load(std::memory_order_relaxed)) return;
  walk_moved(nullptr);
  pool.stored_ns.store(static_cast<std::uint64_t>(monotonic_ns()), std::memory_order_relaxed);
  store_all();
  pool.stored_request.store(request, std::memory_order_release);
}

void Collector::store_before_namespace_ends(const Followed& leaving) {
  store_all();
  if (leaving.process->pid() != setup_.target || !leaving.exit_status) return;
  target_status_ = leaving.exit_status;
  report_seen_end();
  write_manifest();
}

// Since the last walk of it; read anew.
bool Collector::has_moved(Followed& followed) {
  bool exec = false;
  ProcessFollow& process = *followed.process;
  beat();
  if (!process.poll(exec)) return false;
  if (exec) exec_seen(followed);
  return process.policy().has_moved(process.poll_point());
}

// While the process that asks waits, so that all walks show one moment. nullptr: a reader of the recording asks, for
// which the job does not pay beyond the budget.
void Collector::walk_moved(const Followed* asking) {
  const WalkTrigger trigger = asking != nullptr ? WalkTrigger::request : WalkTrigger::interval;
  for (auto& [key, other] : followed_) {
    const ProcessFollow& process = *other.process;
    if (&other == asking || other.has_ended || is_leaving(other) || process.pid() == 0 || !has_moved(other)) continue;
    if (asking == nullptr && !budget_.allows(monotonic_ns(), other.process->policy().expected_cpu_ns())) continue;
    walk_process(other, trigger);
  }
}

// What is killed for lack of memory is as it was at the last of these walks, but for what happened after it.
void Collector::walk_near_limits(std::int64_t now_ns) {
  bool is_near = false;
  for (auto& [key, followed] : followed_) is_near |= !followed.has_ended && followed.process->is_near_limit(now_ns);
  if (!is_near || now_ns < next_limit_ns_) return;
  const std::int64_t begin_cpu_ns = thread_cpu_ns();
  store_all();  // without the events a walk has no lines
  read_unmapped();
  for (auto& [key, followed] : followed_) {
    ProcessFollow& process = *followed.process;
    if (followed.has_ended || is_leaving(followed) || process.pid() == 0 || !process.has_walk()) continue;
    if (process.policy().has_moved(process.poll_point())) walk_process(followed, WalkTrigger::limit);
  }
  next_limit_ns_ = now_ns + LimitPolicy::kCostsBetween * (thread_cpu_ns() - begin_cpu_ns);
}

void Collector::schedule_walk(int family, WalkTrigger trigger) {
  const std::int64_t now_ns = monotonic_ns();
  Due& due =
      due_families_.try_emplace(family, Due{.trigger = trigger, .at_ns = now_ns, .since_ns = now_ns}).first->second;
  if (trigger == WalkTrigger::phase && !of_family(due.trigger)) {
    due.trigger = trigger;
    due.at_ns = std::max(due.at_ns, next_phase_ns_);
  }
  if (!of_family(trigger)) return;
  due.trigger = trigger;
  const bool tracks = trigger == WalkTrigger::fork && setup_.handover.is_open();
  const std::int64_t latest_ns = due.since_ns + (tracks ? kGatherTrackedNs : kGatherLongestNs);
  due.at_ns = std::min(now_ns + (tracks ? kTrackAfterNs : kGatherNs), latest_ns);
}

// But those that take themselves down.
std::vector<Collector::Followed*> Collector::members_to_walk(int family, std::int64_t now_ns) {
  std::vector<Followed*> members;
  for (auto& [key, followed] : followed_) {
    if (followed.family == family && !followed.has_ended && !is_torn_down(followed, now_ns) &&
        followed.process->pid() > 0)
      members.push_back(&followed);
  }
  return members;
}

// Returns the time that it took. A walk that follows growth covers the members that have moved, and the others if pages
// that these share with them may belong to fewer since, which only a copy, or giving them up, can bring about.
std::int64_t Collector::walk_together(const std::vector<Followed*>& members, WalkTrigger trigger,
                                      const std::map<Followed*, WriteTracker::Huge>& tracking) {
  std::vector<Followed*> order = members;
  std::size_t first = order.size();
  if (follows_growth(trigger)) {
    const auto rests = std::stable_partition(order.begin(), order.end(), [this](Followed* member) {
      return has_moved(*member) || member->process->policy().observe(member->process->poll_point());
    });
    first = static_cast<std::size_t>(rests - order.begin());
  }
  std::int64_t together_ns = 0;
  bool changed_hands = false;
  for (std::size_t i = 0; i < order.size() && (i < first || changed_hands); ++i) {
    ProcessFollow& process = *order[i]->process;
    const std::uint64_t shared_pages = process.shared_pages();
    const auto track = tracking.find(order[i]);
    walk_process(*order[i], trigger, track == tracking.end() ? std::nullopt : std::optional(track->second));
    changed_hands |= process.shared_pages() != shared_pages;
    poll_between_walks();
    together_ns += process.policy().expected_cpu_ns();
  }
  for (Followed* member : order) member->process->policy().walked_together(together_ns);
  return together_ns;
}

void Collector::walk_families() {
  const std::int64_t now_ns = monotonic_ns();
  for (auto due = due_families_.begin(); due != due_families_.end();) {
    if (now_ns < due->second.at_ns) {
      ++due;
      continue;
    }
    std::vector<Followed*> members = members_to_walk(due->first, now_ns);
    std::int64_t expected_ns = 0;
    for (Followed* member : members) expected_ns += member->process->policy().expected_cpu_ns();
    const WalkTrigger trigger = due->second.trigger;
    if (trigger == WalkTrigger::phase) std::erase_if(members, [&](Followed* member) { return !has_moved(*member); });
    const bool paid = trigger == WalkTrigger::phase;  // by the program
    const bool allowed = paid                   ? true
                         : must_happen(trigger) ? budget_.allows_overdraft(now_ns)
                                                : budget_.allows(now_ns, expected_ns);
    std::map<Followed*, WriteTracker::Huge> tracking;
    if (allowed) tracking = take_due_tracking(members, now_ns);
    const std::int64_t next_tracking_ns = next_tracking(members);
    // What must happen waits for its turn; all else comes up again at the next poll.
    if (!allowed && !members.empty() && must_happen(trigger)) {
      due++->second.at_ns = now_ns + kAskAgainNs;
      continue;
    }
    const int family = due->first;
    due = due_families_.erase(due);  // before the walks: what comes during them is due anew
    if (allowed) {
      // A fork changes nothing in older children, and younger ones have their turn.
      if (trigger == WalkTrigger::fork && (!tracking.empty() || next_tracking_ns != 0))
        std::erase_if(members, [&](Followed* member) {
          return !tracking.contains(member) && (member->process->has_walk() || member->track_at_ns != 0);
        });
      const std::int64_t together_ns = walk_together(members, trigger, tracking);
      if (paid) next_phase_ns_ = now_ns + kPhaseCosts * together_ns;
    }
    if (next_tracking_ns == 0) continue;
    Due& next =
        due_families_.try_emplace(family, Due{WalkTrigger::fork, next_tracking_ns, next_tracking_ns}).first->second;
    next.trigger = WalkTrigger::fork;
    next.at_ns = std::min(next.at_ns, next_tracking_ns);
  }
}

}  // namespace whyrss
