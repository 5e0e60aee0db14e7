#include "report/view/final_frees.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "report/view/memory_figures.h"
#include "report/view/series.h"
#include "report/view/verdict_thresholds.h"

namespace whyrss {
namespace {

// What was made before, and freed in turn, is older.
constexpr double kPauseS = 0.2;

// What a program has for longer than this before its end is not what it works with at a time.
double longest_work_s(double life_s) {
  constexpr double kPartOfLife = 8;
  return std::max(kLeavingS, life_s / kPartOfLife);
}

struct Point {
  double time_s = 0;
  std::int64_t bytes = 0;
};

// The fall that goes on to the end of some points.
struct Fall {
  std::optional<double> from_s;  // nothing where they do not fall
  std::int64_t bytes = 0;        // by how much
  bool is_long = false;          // it began more than `longest_s` before the end: from_s is a moment in it
};

// A point's figure may have been reached up to `unread_s` before it was read.
Fall fall_of(const std::vector<Point>& points, double end_s, double unread_s, double longest_s) {
  constexpr std::int64_t kLeastPartOfFall = 100;
  Fall fall;
  if (points.empty()) return fall;
  std::int64_t bytes = points.back().bytes;
  for (std::size_t i = points.size() - 1; i > 0; --i) {
    const Point &before = points[i - 1], &read = points[i];
    const double full_s = std::max(before.time_s, read.time_s - unread_s);
    if (fall.from_s.value_or(end_s) - read.time_s > kPauseS) break;
    if (before.bytes - bytes <= std::max<std::int64_t>(bytes, 0) / kLeastPartOfFall) continue;
    fall.is_long = end_s - full_s > longest_s;
    if (fall.is_long) break;
    bytes = before.bytes;
    fall.from_s = full_s;
    fall.bytes = bytes - points.back().bytes;
  }
  return fall;
}

template <typename Source, typename BytesOf>
std::vector<Point> points_until(const std::vector<Source>& source, double end_s, BytesOf bytes) {
  std::vector<Point> points;
  for (const Source& one : source)
    if (one.time_s <= end_s) points.push_back({one.time_s, bytes(one)});
  return points;
}

// The heap may fall and RSS stay as it was, as the allocator keeps the pages; Python's objects lie in no block of
// malloc that is freed with them. Snapshots come too seldom, but where there is nothing else. What a program works off
// evenly to its end was no leak: a fall that is longer than a second and an eighth of its life is none.
std::optional<double> full_until(const ProcessAccount& account, double end_s) {
  // Live bytes are noted where they changed, so up to a poll before; all else as it was at the point before.
  constexpr double kPollS = 0.02, kToPointBefore = kLeavingS;
  const double longest_s = longest_work_s(end_s - account.born_s);
  const Fall heap = fall_of(points_until(account.live_polls, end_s, [](const auto& at) { return at.live_bytes; }),
                            end_s, kPollS, longest_s);
  const Fall rss = fall_of(points_until(account.polls, end_s, [](const auto& at) { return at.rss_bytes; }), end_s,
                           kToPointBefore, longest_s);
  if (heap.is_long || (rss.is_long && 2 * heap.bytes < rss.bytes)) return std::nullopt;
  if (heap.from_s && rss.from_s && !rss.is_long) return std::min(*heap.from_s, *rss.from_s);
  if (heap.from_s) return heap.from_s;
  if (rss.from_s || !account.live_polls.empty()) return rss.from_s;
  const Fall walked =
      fall_of(points_until(account.accounts, end_s, [](const auto& at) { return bytes_of(at, Cause::heap_live); }),
              end_s, kToPointBefore, kLeavingS);
  return walked.is_long ? std::nullopt : walked.from_s;
}

// Whether half of what has gone of a cause since had been there for so long before.
bool was_there(const ProcessView& process, const FinalFrees& final_frees, Cause cause, std::int64_t gone_bytes,
               double seconds) {
  const double from_s = final_frees.until_s - seconds;
  if (from_s <= std::max(process.account->born_s, process.interval.from_s)) return false;
  const std::int64_t left = last_bytes(process, cause);
  const std::vector<Account>& snapshots = process.account->accounts;
  const auto end = std::ranges::upper_bound(snapshots, final_frees.until_s, {}, &Account::time_s);
  for (auto snapshot = std::make_reverse_iterator(end); snapshot != snapshots.rend(); ++snapshot) {
    if (2 * (bytes_of(*snapshot, cause) - left) < gone_bytes) return false;
    if (snapshot->time_s <= from_s) return true;
  }
  return false;
}

// Whether nearly all was freed a while before the end: an allocator may give pages back for seconds after that.
bool was_freed_before(const ProcessView& process, const FinalFrees& final_frees, double end_s) {
  constexpr std::int64_t kLeftPart = 10;
  const std::int64_t last = last_bytes(process, Cause::heap_live);
  return std::ranges::any_of(process.account->accounts, [&](const Account& snapshot) {
    return snapshot.time_s > final_frees.until_s && snapshot.time_s < end_s - kPauseS &&
           kLeftPart * (bytes_of(snapshot, Cause::heap_live) - last) <= final_frees.freed_bytes;
  });
}

// Whether the heap fell by that much again and again before, and came back each time: at its end it did once more what
// it does all the time. By the polls: snapshots may come at the same moment of each round.
bool fell_often(const ProcessAccount& account, double until_s, std::int64_t depth) {
  constexpr int kOften = 3;
  return count_falls(points_until(account.live_polls, until_s, [](const auto& at) { return at.live_bytes; }), depth) >=
         kOften;
}

FinalFrees::Heap heap_of(const View& view, const ProcessView& process, const FinalFrees& final_frees, double end_s) {
  const ProcessView& before = final_frees.process();
  const std::int64_t more = last_bytes(process, Cause::heap_retained) - last_bytes(before, Cause::heap_retained);
  // What lay free beside live blocks is kept with them.
  const std::int64_t beside =
      std::max<std::int64_t>(last_bytes(before, Cause::heap_slack) - last_bytes(process, Cause::heap_slack), 0);
  if (final_frees.freed_bytes < kNamedGrowthBytes || final_frees.freed_bytes * 2 < more - beside)
    return FinalFrees::Heap::as_before;
  if (was_freed_before(process, final_frees, end_s)) return FinalFrees::Heap::as_before;
  if (fell_often(*process.account, final_frees.until_s, final_frees.freed_bytes / 2)) return FinalFrees::Heap::freed;
  const CauseView* live = before.find(Cause::heap_live);
  const Trend trend = live == nullptr ? Trend{} : trend_of(view.recording->stacks, before, *live);
  if (trend.kind == Trend::Kind::growing && trend.evenly) return FinalFrees::Heap::held;
  if (trend.kind == Trend::Kind::waves) return FinalFrees::Heap::freed;
  if (was_held(process, final_frees, Cause::heap_live, final_frees.freed_bytes)) return FinalFrees::Heap::held;
  return is_worth_naming(final_frees.freed_bytes, process) ? FinalFrees::Heap::late : FinalFrees::Heap::freed;
}

}  // namespace

bool held_heap(const ProcessView& process) {
  return process.final_frees != nullptr && process.final_frees->heap == FinalFrees::Heap::held;
}

bool was_held(const ProcessView& process, const FinalFrees& final_frees, Cause cause, std::int64_t gone_bytes) {
  const double begun_s = std::max(process.account->born_s, process.interval.from_s);
  return was_there(process, final_frees, cause, gone_bytes, longest_work_s(final_frees.until_s - begun_s));
}

std::shared_ptr<const FinalFrees> final_frees_of(const View& view, const ProcessView& process,
                                                 const std::function<View(double)>& view_until) {
  const ProcessAccount& account = *process.account;
  const double end_s = end_of_work(*view.recording, account);
  if (!account.has_left || process.interval.to_s < end_s) return nullptr;
  const auto until_s = full_until(account, end_s);
  if (!until_s || *until_s <= process.interval.from_s) return nullptr;
  auto final_frees = std::make_shared<FinalFrees>();
  final_frees->until_s = *until_s;
  // The last snapshot before may be old, and one in the midst of it know of more.
  const Account* before = last_at(account.accounts, *until_s);
  for (const Account& snapshot : account.accounts)
    if (snapshot.time_s > *until_s && snapshot.time_s < process.interval.to_s &&
        (before == nullptr || bytes_of(snapshot, Cause::heap_live) > bytes_of(*before, Cause::heap_live))) {
      before = &snapshot;
      final_frees->until_s = snapshot.time_s;
    }
  final_frees->before = view_until(final_frees->until_s);
  if (!final_frees->process().walked || before == nullptr) return nullptr;
  final_frees->live_bytes = last_bytes(final_frees->process(), Cause::heap_live);
  final_frees->freed_bytes = final_frees->live_bytes - last_bytes(process, Cause::heap_live);
  final_frees->heap = heap_of(view, process, *final_frees, end_s);
  return final_frees;
}

}  // namespace whyrss
