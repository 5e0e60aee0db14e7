// How much of a process's end no walk shows.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "decode/page_frames.h"
#include "decode/touch_records.h"
#include "replay/replay_process.h"

namespace whyrss {
namespace {

constexpr double kAtEndS = 0.1;
constexpr double kCutOffS = 0.5;  // a killed process is noticed, and its end written, within this time
// Polls come every 100 ms, later on a busy machine; below this many pages nothing has moved.
constexpr double kPollNearEndS = 0.3;
constexpr std::int64_t kMovedPages = 256;
constexpr double kAlike = 0.98;

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
bool reports_live_pages(const std::vector<const RawFrame*>& liveness_frames, std::uint64_t walk_ns) {
  return std::ranges::any_of(liveness_frames, [&](const RawFrame* frame) {
    ByteReader reader(frame->payload);
    trace::LivenessHeader header{};
    constexpr std::uint32_t kNothing = trace::LivenessFlags::no_table | trace::LivenessFlags::not_readable;
    return reader.take(header) && header.walk_end_ns == walk_ns && (header.flags & kNothing) == 0 &&
           header.range_count > 0;
  });
}

}  // namespace

// Large blocks, mappings, sampled blocks; both times are within.
bool Replay::has_given_back(const Process& process, std::uint64_t from_ns, std::uint64_t to_ns) {
  for (std::size_t i = process.records.first_at(from_ns); i < process.records.size(); ++i) {
    if (process.records[i].time_ns > to_ns) return false;
    if (gives_back(process.records[i].kind)) return true;
  }
  return false;
}

// Of processes that are killed together one may be walked when the others are gone already: what it shared with them
// looks like its own then, and nothing tells what it had copied.
bool Replay::was_killed_with_relatives(const Process& process, const Walk& walk) const {
  constexpr double kTogetherS = 0.2;
  const auto is_killed = [&](const Process& other) {
    const double walk_s = seconds_since(settings_.origin_ns, walk.time_ns);
    return other.account->end_signal == "SIGKILL" && other.account->ended_s &&
           std::abs(*other.account->ended_s - walk_s) <= kTogetherS;
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

// A process that is killed while it is walked may be gone before its heap is read, or all of its pages, also while it
// takes itself down: the walk before, and what events and polls say since, tell more.
void Replay::leave_out_cut_off_walk(Process& process) const {
  const bool has_other =
      process.walks.size() > 1 || (!process.images.empty() && !process.polls.empty()) || process.end.max_rss_bytes > 0;
  if (!process.walks.empty() && has_other && process.account->ended_s) {
    const auto header = read_walk_header(process.walks.back().frame->payload);
    if (header && (header->flags & trace::WalkFlags::partial) != 0 && header->statm_after_pages == 0)
      process.walks.pop_back();
  }
  if (process.walks.size() < 2 || !process.account->ended_s || process.torn_down) return;
  const Walk& last = process.walks.back();
  const Walk& before = process.walks[process.walks.size() - 2];
  if (*process.account->ended_s - seconds_since(settings_.origin_ns, last.time_ns) > kCutOffS) return;
  bool same_image = true;
  for (std::size_t i = process.records.first_at(before.time_ns + 1); i < process.records.size(); ++i)
    if (const trace::RecordKind kind = process.records[i].kind;
        kind == trace::RecordKind::exec || kind == trace::RecordKind::attach)
      same_image = false;
  const bool lost_heap = reports_live_pages(process.liveness_frames, before.time_ns) &&
                         !reports_live_pages(process.liveness_frames, last.time_ns);
  if (!same_image || !(lost_heap || was_killed_with_relatives(process, last))) return;
  const auto header = read_walk_header(last.frame->payload);
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

// A process that takes itself down gives memory back: what a poll of that time shows more than the last one before was
// there when it began, and the walk that it asked for then is missing. One that asks for none, as nothing has moved
// since the last, has what that one shows: a poll in between may have more, as the kernel unmaps much and still counts
// pages of which the walk finds no mapping any more.
void Replay::settle_polls_of_teardown(Process& process) {
  const auto left_ns = teardown_ns(process);
  if (!left_ns || *left_ns == 0) return;
  if (!process.walks.empty() && process.walks.back().time_ns >= *left_ns) return;
  if (process.torn_down->unmoved && !process.walks.empty()) {
    const Walk& walk = process.walks.back();
    const auto is_between = [&](const trace::Poll& poll) {
      return poll.time_ns > walk.time_ns && poll.time_ns < *left_ns;
    };
    const auto walked =
        std::ranges::any_of(process.polls, is_between) ? read_walk(payload_of(process, *walk.frame)) : std::nullopt;
    if (walked)
      std::erase_if(process.polls, [&](const trace::Poll& poll) {
        return is_between(poll) && poll.rss_pages > walked->resident_pages + kMovedPages;
      });
  }
  const auto first = std::ranges::lower_bound(process.polls, *left_ns, {}, &trace::Poll::time_ns);
  const auto end = std::ranges::upper_bound(process.polls, *left_ns + kTeardownNs, {}, &trace::Poll::time_ns);
  const auto most =
      std::max_element(first, end, [](const auto& a, const auto& b) { return a.rss_pages < b.rss_pages; });
  if (most == end || (first != process.polls.begin() && std::prev(first)->rss_pages >= most->rss_pages)) return;
  trace::Poll poll = *most;
  poll.time_ns = *left_ns - 1;
  const auto live = std::ranges::upper_bound(process.live_polls, most->time_ns, {}, &trace::LivePoll::time_ns);
  if (live != process.live_polls.begin() && std::prev(live)->time_ns > poll.time_ns) {
    const std::int64_t live_bytes = std::prev(live)->live_bytes;
    const auto at = std::ranges::upper_bound(process.live_polls, poll.time_ns, {}, &trace::LivePoll::time_ns);
    process.live_polls.insert(at, {poll.time_ns, live_bytes});
  }
  process.polls.insert(first, poll);
}

// What parents say of children that they waited for. The mark of one that ran exec is also that of the memory before,
// which was its parent's (vfork) or a copy of it. And the kernel counts those that a process waited for itself into its
// mark. It is left out where it may be of one of these.
void Replay::find_max_rss() {
  const auto known_bytes = [](const Process& process) {
    std::int64_t most = std::max(process.account->high_water_bytes, process.end.max_rss_bytes);
    for (const trace::Poll& poll : process.polls)
      most = std::max(most, pages_of(poll) * static_cast<std::int64_t>(process.page_bytes));
    return most;
  };
  const auto is_of_parent = [&](const Process& process, const EndedChild& child) {
    if (process.images.size() == 1 && process.images.front()->attach().born == trace::Born::fork) return false;
    if (process.torn_down) return true;  // it has left by itself: what it may add is not worth the doubt
    return std::ranges::any_of(with_pid(child.parent_pid), [&](const Process* parent) {
      return static_cast<double>(known_bytes(*parent)) >= kAlike * static_cast<double>(child.max_rss_bytes);
    });
  };
  for (const EndedChild& child : ended_children_)
    for (Process* process : with_pid(child.pid)) {
      const auto& images = process->images;
      if (images.empty() || images.front()->attach().parent_pid != child.parent_pid ||
          process->attach_ns > child.time_ns || is_of_parent(*process, child))
        continue;
      process->end.max_rss_bytes = std::max(process->end.max_rss_bytes, child.max_rss_bytes);
    }
  std::unordered_map<std::uint32_t, std::vector<const Process*>> ended_of;  // by the parent of their first image
  for (const auto& process : processes_)
    if (!process->images.empty() && process->account->ended_s)
      ended_of[process->images.front()->attach().parent_pid].push_back(process.get());
  for (const auto& process : processes_) {
    std::int64_t& mark = process->end.max_rss_bytes;
    const auto may_be_of = [&](const Process* other) {
      if (other == process.get()) return false;
      return static_cast<double>(known_bytes(*other)) >= kAlike * static_cast<double>(mark) || !other->torn_down;
    };
    if (mark > 0 && std::ranges::any_of(ended_of[process->input->pid], may_be_of)) mark = 0;
  }
}

// Of a process without a walk at its end the kernel may have said how large it ever was. More than was known at the
// last poll is of the time after that: of its end, where it gave nothing back.
bool Replay::add_poll_by_mark(Process& process) const {
  const std::int64_t mark = process.end.max_rss_bytes;
  if (mark == 0 || !process.account->ended_s) return false;
  const auto left_ns = teardown_ns(process);
  if (left_ns && !process.walks.empty() && process.walks.back().time_ns >= *left_ns) return false;
  const std::uint64_t end_ns = left_ns.value_or(time_ns_at(settings_.origin_ns, *process.account->ended_s));
  const auto page_bytes = static_cast<std::int64_t>(process.page_bytes);
  trace::Poll final_poll = process.polls.empty() ? trace::Poll{} : process.polls.back();
  std::int64_t known = process.account->high_water_bytes;
  for (const trace::Poll& poll : process.polls) known = std::max(known, pages_of(poll) * page_bytes);
  for (const Walk& walk : process.walks) {
    const auto header = read_walk_header(walk.frame->payload);
    if (!header) continue;
    known = std::max(known, static_cast<std::int64_t>(header->statm_after_pages) * page_bytes);
    if (walk.time_ns <= final_poll.time_ns) continue;
    final_poll.time_ns = walk.time_ns;
    final_poll.rss_pages = header->statm_after_pages;
  }
  const bool is_new = mark - known > kMovedPages * page_bytes;
  if (is_new) process.account->high_water_bytes = mark;
  const std::uint64_t from_ns = final_poll.time_ns;
  bool gave_back = false, ran_exec = false;
  for (std::size_t i = process.records.first_at(from_ns + 1); i < process.records.size(); ++i) {
    if (left_ns && process.records[i].time_ns >= end_ns) break;
    gave_back |= gives_back(process.records[i].kind);
    ran_exec |= process.records[i].kind == trace::RecordKind::exec;
    final_poll.time_ns = std::max(final_poll.time_ns, process.records[i].time_ns);
    if (const auto sample = touch_sample(process.records[i])) final_poll.minor_faults += sample->weight;
  }
  if (ran_exec || (!is_new && !gave_back)) return false;
  final_poll.time_ns = left_ns ? end_ns - 1 : std::max(final_poll.time_ns + 1, end_ns);
  if (gave_back) {
    process.grows_from_ns = from_ns != 0 || process.images.empty() ? from_ns : process.attach_ns;
    process.most_pages = static_cast<std::uint64_t>(std::max(mark, known) / page_bytes);
  } else {
    final_poll.rss_pages = static_cast<std::uint64_t>(mark / page_bytes);
  }
  process.polls.push_back(final_poll);
  process.killed_ns = final_poll.time_ns;
  return true;
}

// What sampled page faults of [from_ns, to_ns] stand for.
std::int64_t Replay::sampled_faults(const Process& process, std::uint64_t from_ns, std::uint64_t to_ns) {
  std::int64_t faults = 0;
  for (std::size_t i = process.records.first_at(from_ns);
       i < process.records.size() && process.records[i].time_ns <= to_ns; ++i)
    if (const auto sample = touch_sample(process.records[i])) faults += sample->weight;
  return faults;
}

// What the last walk saw and what came since then, by sampled faults, without what was given back.
std::uint64_t Replay::resident_by_events(const Process& process) {
  const SinceWalk since = process.space.touched().since_walk();
  std::uint64_t pages = 0;
  for (const ResidentRun& run : since.left) pages += (run.end - run.start) / process.page_bytes;
  for (const TouchSample& sample : since.touched) pages += std::max<std::uint32_t>(sample.weight, 1);
  return pages;
}

std::uint64_t Replay::pages_at_kill(const Process& process, std::uint64_t polled_pages) {
  if (polled_pages == 0 && process.walked_ns == 0)  // no poll and no walk: it began with what it inherited
    for (const ForkRange& range : process.space.inheritance().ranges())
      polled_pages += (range.end - range.start) / process.page_bytes;
  if (!process.resident_then) return polled_pages + process.grown_pages;
  const std::uint64_t now = polled_pages + resident_by_events(process);
  return std::min(process.most_pages, now - std::min(now, *process.resident_then));
}

// A process that was ended in the middle of its work was polled up to 20 ms before that. What it took since is known
// from its sampled page faults, unless those before brought more than a page each, or brought again what it had given
// back.
void Replay::add_poll_by_faults(Process& process) {
  constexpr std::uint64_t kLongestNs = 300'000'000, kRatioNs = 200'000'000;
  constexpr double kOnePageLeast = 0.85, kOnePageMost = 1.1;
  if (!process.account->ended_s || process.torn_down || process.polls.empty()) return;
  const trace::Poll& last = process.polls.back();
  trace::Poll final_poll = last;
  if (!process.walks.empty() && process.walks.back().time_ns > last.time_ns) {
    const auto header = read_walk_header(process.walks.back().frame->payload);
    if (!header) return;
    final_poll.time_ns = process.walks.back().time_ns;
    final_poll.rss_pages = header->statm_after_pages;
  }
  // A walk misses copies that were made while it went on, in what it had passed already.
  const bool copies = may_share_pages(process);
  const bool by_walk = final_poll.time_ns != last.time_ns;
  const std::uint64_t from_ns = final_poll.time_ns, copies_from_ns = by_walk ? process.walks.back().begin_ns : from_ns;
  double faults = 0;
  if (by_walk) ++final_poll.time_ns;
  for (std::size_t i = process.records.first_at(std::min(from_ns, copies_from_ns)); i < process.records.size(); ++i) {
    const EventRecord& record = process.records[i];
    if (record.time_ns <= from_ns) {
      const auto sample = copies && record.time_ns > copies_from_ns ? touch_sample(record) : std::nullopt;
      if (sample) faults += sample->weight;
      continue;
    }
    if (record.time_ns - from_ns > kLongestNs || gives_back(record.kind)) return;
    const auto sample = touch_sample(record);
    if (!sample) continue;
    faults += sample->weight;
    final_poll.time_ns = record.time_ns;
  }
  if (faults < static_cast<double>(kMovedPages)) return;
  const auto& first = *std::ranges::lower_bound(process.polls, last.time_ns - std::min(last.time_ns, kRatioNs), {},
                                                &trace::Poll::time_ns);
  const std::int64_t before = faults_of(last) - faults_of(first);
  const double pages_per_fault =
      static_cast<double>(pages_of(last) - pages_of(first)) / static_cast<double>(std::max<std::int64_t>(before, 1));
  if (before < kMovedPages ? !copies : pages_per_fault > kOnePageMost || (!copies && pages_per_fault < kOnePageLeast))
    return;
  final_poll.minor_faults += static_cast<std::uint64_t>(faults);
  process.polls.push_back(final_poll);
  process.killed_ns = final_poll.time_ns;
  process.grows_from_ns = from_ns;
}

// Small blocks come and go in memory that stays: events alone, of samples or of all, tell what of it lives at the end.
void Replay::add_poll_by_blocks(Process& process) const {
  constexpr std::uint64_t kFewBlocks = 8;
  if (!process.account->ended_s || process.torn_down || process.polls.empty() || process.walks.empty()) return;
  trace::Poll final_poll = process.polls.back();
  const std::uint64_t from_ns = process.walks.back().begin_ns;
  std::uint64_t blocks = 0;
  for (std::size_t i = process.records.first_at(from_ns); i < process.records.size(); ++i) {
    const EventRecord& record = process.records[i];
    final_poll.time_ns = std::max(final_poll.time_ns, record.time_ns + 1);
    trace::BlockRecord block{};
    if (record.kind == trace::RecordKind::release ||
        (record.kind == trace::RecordKind::allocate && read_record(record, block) && block.sampled_bytes > 0))
      ++blocks;
  }
  if (process.merge) {
    const std::uint64_t from_ticks = clock_.ticks_at(from_ns);
    for (const StoredRun& run : process.input->stream.runs().all())
      if (run.last_ticks > from_ticks) blocks += run.event_count;
    final_poll.time_ns = std::max(final_poll.time_ns, time_ns_at(settings_.origin_ns, *process.account->ended_s));
  }
  process.blocks_moved = blocks >= kFewBlocks;
  if (!process.blocks_moved || process.killed_ns != 0) return;
  process.polls.push_back(final_poll);
  process.killed_ns = final_poll.time_ns;
}

// Of a process whose size at its end is known from faults: which of them copied a page instead of bringing one is known
// as they are replayed.
void Replay::grow_by_fault(Process& process, const EventRecord& record) {
  constexpr std::uint64_t kMostPages = std::uint64_t{1} << 30;  // what says more is damaged
  if (process.grows_from_ns == 0 || record.time_ns <= process.grows_from_ns) return;
  const auto sample = touch_sample(record);
  if (!sample || process.space.may_copy(*sample)) return;
  process.grown_pages = std::min(process.grown_pages + static_cast<std::uint64_t>(sample->weight), kMostPages);
}

// By polls: from the one of the last walk to one right before its end.
bool Replay::has_rested(const Process& process, double walk_s, double end_s) const {
  const auto time_s = [&](const trace::Poll& poll) { return seconds_since(settings_.origin_ns, poll.time_ns); };
  const auto after_walk = std::ranges::upper_bound(process.polls, walk_s, {}, time_s);
  const auto after_end = std::ranges::upper_bound(process.polls, end_s, {}, time_s);
  if (after_walk == process.polls.begin() || after_end == process.polls.begin()) return false;
  const trace::Poll& then = *std::prev(after_walk);
  const trace::Poll& last = *std::prev(after_end);
  if (end_s - time_s(last) > kPollNearEndS || faults_of(last) - faults_of(then) > kMovedPages) return false;
  return std::ranges::all_of(std::prev(after_walk), after_end, [&](const trace::Poll& poll) {
    return std::abs(pages_of(poll) - pages_of(then)) <= kMovedPages;
  });
}

// Whether events say that more came after the last walk, or what the kernel says of it as a whole.
bool Replay::has_moved_since(const Process& process, double walk_s, std::uint64_t origin_ns) {
  if (process.killed_ns != 0) return true;
  const std::uint64_t walk_ns = time_ns_at(origin_ns, walk_s);
  if (sampled_faults(process, walk_ns, std::numeric_limits<std::uint64_t>::max()) > kMovedPages) return true;
  const auto live = process.account->counters.find("live_bytes");
  if (live == process.account->counters.end() || process.live_polls.empty()) return false;
  const auto time_s = [&](const trace::LivePoll& poll) { return seconds_since(origin_ns, poll.time_ns); };
  const auto next = std::ranges::upper_bound(process.live_polls, walk_s, {}, time_s);
  const std::int64_t then = next == process.live_polls.begin() ? 0 : std::prev(next)->live_bytes;
  return std::abs(static_cast<double>(live->second) - static_cast<double>(then)) >
         static_cast<double>(kMovedPages * static_cast<std::int64_t>(process.page_bytes));
}

std::optional<double> Replay::unseen_s(const Process& process) const {
  const ProcessAccount& account = *process.account;
  if (!account.ended_s || account.accounts.empty()) return std::nullopt;
  const double end_s = account.teardown_s.value_or(*account.ended_s);
  std::optional<double> walk_s;
  for (const Account& at : account.accounts)
    if (at.time_s <= end_s && !at.estimated_from_s) walk_s = at.time_s;
  if (!walk_s) return account.teardown_s ? std::nullopt : std::optional(end_s - account.born_s);
  const bool unmoved = account.teardown_s && process.torn_down->unmoved;
  if (!account.teardown_s && end_s > *walk_s && has_moved_since(process, *walk_s, settings_.origin_ns))
    return end_s - *walk_s;
  return unmoved || end_s - *walk_s <= kAtEndS || has_rested(process, *walk_s, end_s) ? 0 : end_s - *walk_s;
}

}  // namespace whyrss
