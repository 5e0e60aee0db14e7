// How much of a process's end nobody looked at.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "ingest/page_frames.h"
#include "ingest/replay_process.h"
#include "ingest/touch_records.h"

namespace whyrss {
namespace {

constexpr double kAtEndS = 0.1;
constexpr double kCutOffS = 0.5;  // a killed process is noticed, and its end written, within this time
// Polls come every 100 ms, later on a busy machine; below this many pages nothing has moved.
constexpr double kPollNearEndS = 0.3;
constexpr std::int64_t kMovedPages = 256;

std::int64_t faults_of(const trace::Poll& poll) {
  return static_cast<std::int64_t>(poll.minor_faults + poll.major_faults);
}

std::int64_t pages_of(const trace::Poll& poll) { return static_cast<std::int64_t>(poll.rss_pages); }

bool gives_back(trace::RecordKind kind) {
  using Kind = trace::RecordKind;
  constexpr std::array kKinds{Kind::release, Kind::unmap, Kind::remap, Kind::advise, Kind::break_moved, Kind::exec};
  return std::ranges::find(kKinds, kind) != kKinds.end();
}

// Whether what is live in the heap was read with that walk.
bool tells_live_pages(const std::vector<Bytes>& liveness_frames, std::uint64_t walk_ns) {
  return std::ranges::any_of(liveness_frames, [&](Bytes payload) {
    ByteReader reader(payload);
    trace::LivenessHeader header{};
    constexpr std::uint32_t kNothing = trace::LivenessFlags::no_table | trace::LivenessFlags::not_readable;
    return reader.take(header) && header.walk_end_ns == walk_ns && (header.flags & kNothing) == 0 &&
           header.range_count > 0;
  });
}

}  // namespace

// Of processes that are killed together one may be looked at when the others are gone already: what it shared with them
// looks like its own then, and nothing tells what it had copied.
bool Replay::was_killed_with_relatives(const Process& process, const Walk& look) const {
  constexpr double kTogetherS = 0.2;
  const auto is_killed = [&](const Process& other) {
    const double look_s = seconds_since(settings_.origin_ns, look.time_ns);
    return other.account->end_signal == "SIGKILL" && other.account->ended_s &&
           std::abs(*other.account->ended_s - look_s) <= kTogetherS;
  };
  const auto pid_of = [](const Process& one) { return static_cast<std::uint32_t>(one.input->pid); };
  const auto parent_of = [](const Process& one) {
    const bool forked = !one.images.empty() && one.images.front()->attach().born == trace::Born::fork;
    return forked ? one.images.front()->attach().parent_pid : 0;
  };
  if (!is_killed(process)) return false;
  return std::ranges::any_of(processes_, [&](const auto& other) {
    const bool are_relatives = parent_of(*other) == pid_of(process) || parent_of(process) == pid_of(*other) ||
                               (parent_of(process) != 0 && parent_of(process) == parent_of(*other));
    return other.get() != &process && are_relatives && is_killed(*other);
  });
}

// A process that is killed while it is looked at may be gone before its heap is read, or all of its pages: the look
// before, and what events and polls say since, tell more.
void Replay::leave_out_cut_off_look(Process& process) const {
  const bool has_other = process.walks.size() > 1 || (!process.images.empty() && !process.polls.empty());
  if (!process.walks.empty() && has_other && process.account->ended_s && !process.torn_down) {
    const auto header = read_walk_header(process.walks.back().payload);
    if (header && (header->flags & trace::WalkFlags::partial) != 0 && header->statm_after_pages == 0)
      process.walks.pop_back();
  }
  if (process.walks.size() < 2 || !process.account->ended_s || process.torn_down) return;
  const Walk& last = process.walks.back();
  const Walk& before = process.walks[process.walks.size() - 2];
  if (*process.account->ended_s - seconds_since(settings_.origin_ns, last.time_ns) > kCutOffS) return;
  const bool same_image = std::ranges::none_of(process.records, [&](const EventRecord& record) {
    return record.time_ns > before.time_ns &&
           (record.kind == trace::RecordKind::exec || record.kind == trace::RecordKind::attach);
  });
  const bool lost_heap = tells_live_pages(process.liveness_frames, before.time_ns) &&
                         !tells_live_pages(process.liveness_frames, last.time_ns);
  if (!same_image || !(lost_heap || was_killed_with_relatives(process, last))) return;
  const auto header = read_walk_header(last.payload);
  if (header && !process.polls.empty() && process.polls.back().time_ns < last.time_ns) {  // its size is known
    trace::Poll poll = process.polls.back();
    poll.time_ns = last.time_ns;
    poll.rss_pages = header->statm_after_pages;
    poll.minor_faults = std::max(poll.minor_faults, header->minor_faults);
    poll.shared_pages = std::min(poll.shared_pages, poll.rss_pages);
    if (poll.rss_pages > 0) process.polls.push_back(poll);
  }
  process.walks.pop_back();
}

// A process that was ended in the middle of its work was polled up to 20 ms before that. What it took since is told by
// its sampled page faults, unless those before brought more than a page each, or brought again what it had given back.
void Replay::add_poll_by_faults(Process& process) {
  constexpr std::uint64_t kLongestNs = 300'000'000, kRatioNs = 200'000'000;
  constexpr double kOnePageLeast = 0.85, kOnePageMost = 1.1;
  if (!process.account->ended_s || process.torn_down || process.polls.empty()) return;
  const trace::Poll& last = process.polls.back();
  trace::Poll told = last;
  if (!process.walks.empty() && process.walks.back().time_ns > last.time_ns) {
    const auto header = read_walk_header(process.walks.back().payload);
    if (!header) return;
    told.time_ns = process.walks.back().time_ns;
    told.rss_pages = header->statm_after_pages;
  }
  // A walk misses copies that were made while it went on, in what it had passed already.
  const bool copies = may_share_pages(process);
  const bool by_walk = told.time_ns != last.time_ns;
  const std::uint64_t from_ns = told.time_ns, copies_from_ns = by_walk ? process.walks.back().begin_ns : from_ns;
  double faults = 0;
  if (by_walk) ++told.time_ns;
  for (const EventRecord& record : process.records) {
    if (record.time_ns <= from_ns) {
      const auto sample = copies && record.time_ns > copies_from_ns ? touch_sample(record) : std::nullopt;
      if (sample) faults += sample->weight;
      continue;
    }
    if (record.time_ns - from_ns > kLongestNs || gives_back(record.kind)) return;
    const auto sample = touch_sample(record);
    if (!sample) continue;
    faults += sample->weight;
    told.time_ns = record.time_ns;
  }
  if (faults < static_cast<double>(kMovedPages)) return;
  const auto& first = *std::ranges::lower_bound(process.polls, last.time_ns - std::min(last.time_ns, kRatioNs), {},
                                                &trace::Poll::time_ns);
  const std::int64_t before = faults_of(last) - faults_of(first);
  const double pages_per_fault =
      static_cast<double>(pages_of(last) - pages_of(first)) / static_cast<double>(std::max<std::int64_t>(before, 1));
  if (before < kMovedPages ? !copies : pages_per_fault > kOnePageMost || (!copies && pages_per_fault < kOnePageLeast))
    return;
  told.minor_faults += static_cast<std::uint64_t>(faults);
  process.polls.push_back(told);
  process.killed_ns = told.time_ns;
  process.grows_from_ns = from_ns;
}

// Of a process whose size at its end is told by faults: which of them copied a page instead of bringing one is known as
// they are replayed.
void Replay::grow_by_fault(Process& process, const EventRecord& record) {
  constexpr std::uint64_t kMostPages = std::uint64_t{1} << 30;  // what says more is damaged
  if (process.grows_from_ns == 0 || record.time_ns <= process.grows_from_ns) return;
  const auto sample = touch_sample(record);
  if (!sample || process.space.may_copy(*sample)) return;
  process.grown_pages = std::min(process.grown_pages + static_cast<std::uint64_t>(sample->weight), kMostPages);
}

// By polls: from the one of the last look to one right before its end.
bool Replay::has_rested(const Process& process, double look_s, double end_s) const {
  const auto time_s = [&](const trace::Poll& poll) { return seconds_since(settings_.origin_ns, poll.time_ns); };
  const auto after_look = std::ranges::upper_bound(process.polls, look_s, {}, time_s);
  const auto after_end = std::ranges::upper_bound(process.polls, end_s, {}, time_s);
  if (after_look == process.polls.begin() || after_end == process.polls.begin()) return false;
  const trace::Poll& then = *std::prev(after_look);
  const trace::Poll& last = *std::prev(after_end);
  if (end_s - time_s(last) > kPollNearEndS || faults_of(last) - faults_of(then) > kMovedPages) return false;
  return std::ranges::all_of(std::prev(after_look), after_end, [&](const trace::Poll& poll) {
    return std::abs(pages_of(poll) - pages_of(then)) <= kMovedPages;
  });
}

std::optional<double> Replay::unseen_s(const Process& process) const {
  const ProcessAccount& account = *process.account;
  if (!account.ended_s || account.accounts.empty()) return std::nullopt;
  const double end_s = account.teardown_s.value_or(*account.ended_s);
  std::optional<double> look_s;
  for (const Account& at : account.accounts)
    if (at.time_s <= end_s && !at.estimated_from_s) look_s = at.time_s;
  if (!look_s) return std::nullopt;
  const bool unmoved = account.teardown_s && process.torn_down->unmoved;
  return unmoved || end_s - *look_s <= kAtEndS || has_rested(process, *look_s, end_s) ? 0 : end_s - *look_s;
}

}  // namespace whyrss
