#include "replay/estimate_moments.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <span>
#include <utility>

namespace whyrss {
namespace {

constexpr std::uint64_t kNearNs = 30'000'000;  // of a walk: it tells
constexpr std::uint64_t kStepNs = 100'000'000, kKnownStepNs = 1'000'000'000;
// Walks lie closer wherever a process is larger than before (WalkPolicy): between them it was as it had been, or is at
// the walk that follows.
constexpr std::uint64_t kShortGapNs = 300'000'000;
constexpr std::uint64_t kMostSteps = 16;
constexpr std::uint64_t kMovePages = 256, kMovePart = 50;  // a step: 1 MiB, and 2 %
constexpr std::size_t kMostEdges = 128;                    // each takes a report as long as a walk
constexpr std::uint64_t kNoisePages = 64;                  // statm counts in batches per thread

std::uint64_t distance(std::uint64_t a, std::uint64_t b) { return a > b ? a - b : b - a; }
bool is_step(std::uint64_t from, std::uint64_t to) {
  return distance(from, to) > std::max(kMovePages, from / kMovePart);
}

using Polls = std::span<const trace::Poll>;

// The highest and the lowest of each step of time, of `shortest_ns` at least.
std::vector<const trace::Poll*> extremes(Polls gap, std::uint64_t shortest_ns) {
  const std::uint64_t length_ns = gap.back().time_ns - gap.front().time_ns;
  const std::uint64_t step_ns = std::max(shortest_ns, length_ns / kMostSteps);
  std::vector<const trace::Poll*> found;
  for (auto first = gap.begin(); first != gap.end();) {
    const auto end = std::find_if(first, gap.end(),
                                  [&](const trace::Poll& poll) { return poll.time_ns - first->time_ns >= step_ns; });
    auto [low, high] = std::ranges::minmax_element(first, end, {}, &trace::Poll::rss_pages);
    if (low > high) std::swap(low, high);
    found.push_back(&*low);
    if (high != low) found.push_back(&*high);
    first = end;
  }
  return found;
}

// Faults that brought no new page: a copy of a shared page takes one, and no size tells of it.
std::uint64_t faults_without_growth(const trace::Poll& from, const trace::Poll& to) {
  const std::uint64_t faults = to.minor_faults - std::min(from.minor_faults, to.minor_faults);
  const std::uint64_t grown = to.rss_pages - std::min(from.rss_pages, to.rss_pages);
  return faults - std::min(faults, grown);
}

// `before`: the poll before the gap; where a walk comes after it, the one before the walk that it begins with: what was
// copied while that walk went on, and right after it, nothing else tells.
void add_moments(Polls gap, const trace::Poll* before, std::uint64_t walked_pages, bool ends_open, Copies copies,
                 std::uint64_t step_ns, std::vector<trace::Poll>& moments) {
  const auto [lowest, highest] = std::ranges::minmax_element(gap, {}, &trace::Poll::rss_pages);
  std::uint64_t reported_pages = walked_pages;
  const trace::Poll* since = before != nullptr ? before : &gap.front();
  const auto report = [&](const trace::Poll& poll) {
    moments.push_back(poll);
    reported_pages = poll.rss_pages;
    since = &poll;
  };
  const auto may_have_copied = [&](const trace::Poll& poll, std::uint64_t least_pages) {
    return copies == Copies::possible && faults_without_growth(*since, poll) > std::max(kMovePages, least_pages);
  };
  for (const trace::Poll* poll : extremes(gap, step_ns)) {
    const bool extreme = poll == &*lowest || poll == &*highest;
    if (is_step(reported_pages, poll->rss_pages) || may_have_copied(*poll, poll->rss_pages / kMovePart) ||
        (extreme && distance(reported_pages, poll->rss_pages) > kMovePages))
      report(*poll);
  }
  const trace::Poll& last = gap.back();
  if (!moments.empty() && moments.back().time_ns == last.time_ns) return;
  if (may_have_copied(last, ends_open ? 0 : last.rss_pages / kMovePart) ||
      distance(reported_pages, last.rss_pages) > (ends_open ? kNoisePages : kMovePages))
    report(last);
}

}  // namespace

std::vector<trace::Poll> moments_between_walks(const std::vector<trace::Poll>& polls,
                                               const std::vector<WalkMoment>& walks, Copies copies) {
  std::vector<trace::Poll> moments, gap;
  const trace::Poll* before = nullptr;
  auto poll = polls.begin();
  std::uint64_t largest_pages = 0;
  const auto add_gap = [&](std::size_t next) {
    if (next < walks.size()) largest_pages = std::max(largest_pages, walks[next].rss_pages);
    if (gap.empty()) return;
    const std::uint64_t gap_pages = std::ranges::max_element(gap, {}, &trace::Poll::rss_pages)->rss_pages;
    const bool is_known = gap_pages <= std::exchange(largest_pages, std::max(largest_pages, gap_pages)) &&
                          copies == Copies::impossible && next > 0 && next < walks.size();
    if (is_known && walks[next].begin_ns - walks[next - 1].end_ns < kShortGapNs) return;
    if (next > 0 || walks.empty())
      return add_moments(gap, before, next == 0 ? 0 : walks[next - 1].rss_pages, next == walks.size(), copies,
                         is_known ? kKnownStepNs : kStepNs, moments);
    // Before the first walk little is known: only what was larger than that counts.
    const trace::Poll& highest = *std::ranges::max_element(gap, {}, &trace::Poll::rss_pages);
    if (highest.rss_pages > walks.front().rss_pages && is_step(walks.front().rss_pages, highest.rss_pages))
      moments.push_back(highest);
  };
  for (std::size_t next = 0; next <= walks.size(); ++next) {
    const bool ends_open = next == walks.size();
    const std::uint64_t near_ns = ends_open ? 1 : kNearNs;  // of the end every word counts
    const std::uint64_t from_ns = next == 0 ? 0 : walks[next - 1].end_ns + near_ns;
    const std::uint64_t to_ns = ends_open ? std::numeric_limits<std::uint64_t>::max() : walks[next].begin_ns;
    // What went right before a walk it does not tell. Of the first one too little is known before it.
    const auto is_like_next = [&](const trace::Poll& each) {
      return !ends_open && each.time_ns + kNearNs >= to_ns &&
             (next == 0 || !is_step(each.rss_pages, walks[next].rss_pages));
    };
    gap.clear();
    before = nullptr;
    if (const auto after = next == 0
                               ? polls.begin()
                               : std::ranges::upper_bound(polls, walks[next - 1].begin_ns, {}, &trace::Poll::time_ns);
        after != polls.begin())
      before = &*std::prev(after);
    for (; poll != polls.end() && poll->time_ns < to_ns; ++poll) {
      if (poll->time_ns < from_ns || poll->rss_pages == 0 || is_like_next(*poll)) continue;
      if (gap.empty() && ends_open) before = poll == polls.begin() ? nullptr : &*std::prev(poll);
      gap.push_back(*poll);
    }
    add_gap(next);
  }
  return moments;
}

void add_edges(const std::vector<trace::Poll>& sizes, std::vector<trace::Poll>& moments) {
  struct Edge {
    trace::Poll poll{};
    std::uint64_t moved_pages = 0;
  };
  std::vector<Edge> edges;
  std::uint64_t last_pages = 0;
  for (const trace::Poll& size : sizes) {
    if (!std::ranges::binary_search(moments, size.time_ns, {}, &trace::Poll::time_ns))
      edges.push_back({size, distance(size.rss_pages, last_pages)});
    last_pages = size.rss_pages;
  }
  if (edges.size() > kMostEdges) {
    std::ranges::nth_element(edges, edges.begin() + kMostEdges, std::ranges::greater{}, &Edge::moved_pages);
    edges.resize(kMostEdges);
  }
  for (const Edge& edge : edges) moments.push_back(edge.poll);
  std::ranges::sort(moments, {}, &trace::Poll::time_ns);
}

}  // namespace whyrss
