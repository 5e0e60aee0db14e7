// How much of a process's end nobody looked at.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "ingest/page_frames.h"
#include "ingest/replay_process.h"

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

// A process that is killed while it is looked at may be gone before its heap is read: the look before, and what events
// and polls say since, tell more.
void Replay::leave_out_cut_off_look(Process& process) const {
  if (process.walks.size() < 2 || !process.account->ended_s || process.torn_down) return;
  const Walk& last = process.walks.back();
  const Walk& before = process.walks[process.walks.size() - 2];
  if (*process.account->ended_s - seconds_since(settings_.origin_ns, last.time_ns) > kCutOffS) return;
  const bool same_image = std::ranges::none_of(process.records, [&](const EventRecord& record) {
    return record.time_ns > before.time_ns &&
           (record.kind == trace::RecordKind::exec || record.kind == trace::RecordKind::attach);
  });
  if (!same_image || !tells_live_pages(process.liveness_frames, before.time_ns) ||
      tells_live_pages(process.liveness_frames, last.time_ns))
    return;
  const auto header = read_walk_header(last.payload);
  if (header && !process.polls.empty() && process.polls.back().time_ns < last.time_ns) {  // its size is known
    trace::Poll poll = process.polls.back();
    poll.time_ns = last.time_ns;
    poll.rss_pages = header->statm_after_pages;
    poll.shared_pages = std::min(poll.shared_pages, poll.rss_pages);
    if (poll.rss_pages > 0) process.polls.push_back(poll);
  }
  process.walks.pop_back();
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
