#include "collect/loop/walk_policy.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "support/page_size.h"

namespace whyrss {
namespace {

std::uint64_t distance(std::uint64_t a, std::uint64_t b) { return a > b ? a - b : b - a; }

// In pages, by RSS or live bytes.
std::uint64_t resizing(const PollPoint& a, const PollPoint& b) {
  const auto [low, high] = std::minmax(a.live_bytes, b.live_bytes);
  const std::uint64_t live = (static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low)) / kPageBytes;
  return std::max(distance(a.rss_pages, b.rss_pages), live);
}

std::uint64_t noticeable_pages(const PollPoint& walk) { return std::max(WalkPolicy::kMovePages, walk.rss_pages / 100); }

}  // namespace

std::uint64_t movement(const PollPoint& a, const PollPoint& b) {
  return std::max(resizing(a, b), distance(a.faults, b.faults));
}

void WalkBudget::fill(std::int64_t now_ns) {
  const bool busy = now_ns - begun_ns_ < kFirstNs || (moved_ns_ != 0 && now_ns - moved_ns_ < kMovingNs);
  const double share = share_ * (busy ? 1 : kRestPart) * busy_cores_;
  const auto earned = static_cast<std::int64_t>(static_cast<double>(now_ns - filled_ns_) * share);
  filled_ns_ = now_ns;
  must_ns_ += earned / 2;
  growth_ns_ += earned - earned / 2;
  const std::int64_t must_over = std::max<std::int64_t>(must_ns_ - kBurstNs, 0);
  const std::int64_t growth_over = std::max<std::int64_t>(growth_ns_ - kBurstNs, 0);
  must_ns_ = std::min(must_ns_ - must_over + growth_over, kBurstNs);
  growth_ns_ = std::min(growth_ns_ - growth_over + must_over, kBurstNs);
}

void WalkBudget::observe(std::int64_t now_ns, bool moves, double busy_cores) {
  fill(now_ns);
  if (moves) moved_ns_ = now_ns;
  busy_cores_ = std::max(busy_cores, 1.0);
}

bool WalkBudget::allows(std::int64_t now_ns, std::int64_t expected_cpu_ns) {
  fill(now_ns);
  // No token bucket holds more: what takes longer waits until it is full.
  return growth_ns_ > 0 && growth_ns_ >= std::min(expected_cpu_ns / 2, kBurstNs);
}

bool WalkBudget::allows_overdraft(std::int64_t now_ns) {
  fill(now_ns);
  return must_ns_ > -kBurstNs;
}

bool PeakPolicy::observe(const PollPoint& point) {
  const auto remember = [&] {
    asked_ns_ = point.time_ns;
    asked_rss_pages_ = std::max<std::uint64_t>(point.rss_pages, 1);
  };
  if (asked_rss_pages_ == 0) {  // it has just reported how it starts
    first_ns_ = point.time_ns;
    remember();
    return false;
  }
  const std::int64_t between_ns = std::clamp((point.time_ns - first_ns_) / kAgeParts, kShortestNs, kLongestNs);
  if (point.rss_pages <= asked_rss_pages_ + asked_rss_pages_ / 10 || point.time_ns - asked_ns_ < between_ns)
    return false;
  remember();
  return true;
}

bool ViewPolicy::is_due(trace::WalkTrigger trigger, std::int64_t now_ns, std::uint64_t rss_pages) const {
  if (trigger == trace::WalkTrigger::exit) return true;
  const std::int64_t since_ns = now_ns - probed_ns_;
  if (trigger == trace::WalkTrigger::request) {
    const bool moved = distance(rss_pages, rss_pages_) >= std::max(kGrownPages, rss_pages_ / kMovedPart);
    return token_ns(now_ns) > 0 || (moved && since_ns >= kMovedCostsBetween * last_cpu_ns_);
  }
  const bool worth = is_behind(rss_pages) || since_ns >= kIntervalNs;
  return worth && since_ns >= kCostsBetween * last_cpu_ns_;
}

std::int64_t ViewPolicy::token_ns(std::int64_t now_ns) const {
  return std::min(token_ns_ + (now_ns - probed_ns_) / kCostsBetween, kBucketNs);
}

void ViewPolicy::probed(std::int64_t now_ns, std::int64_t cpu_ns, std::uint64_t rss_pages) {
  token_ns_ = token_ns(now_ns) - cpu_ns;
  probed_ns_ = now_ns;
  last_cpu_ns_ = cpu_ns;
  rss_pages_ = rss_pages;
}

bool RollupPolicy::observe(const PollPoint& point, bool alone) {
  // What it takes and gives back at one size is no movement, but may be copies of what it shares.
  const auto noticeable = [](const PollPoint& from) { return std::max(kMovePages, from.rss_pages / kMovePart); };
  if (resting_.time_ns == 0 || distance(point.rss_pages, resting_.rss_pages) > noticeable(resting_)) resting_ = point;
  if (point.time_ns - resting_.time_ns < (alone ? kRestAloneNs : kRestNs)) return false;
  const std::uint64_t moved =
      std::max(distance(point.rss_pages, read_.rss_pages), distance(point.faults, read_.faults));
  return !has_read_ || (moved > noticeable(read_) && is_old(point.time_ns));
}

bool RollupPolicy::is_old(std::int64_t now_ns) const {
  return !has_read_ || now_ns - read_.time_ns >= std::max(kGapNs, kCostsBetween * last_cpu_ns_);
}

void RollupPolicy::read(const PollPoint& point, std::int64_t cpu_ns) {
  read_ = point;
  has_read_ = true;
  last_cpu_ns_ = cpu_ns;
}

std::int64_t RollupPolicy::expected_cpu_ns(std::uint64_t rss_pages) const {
  const auto pages = static_cast<std::int64_t>(rss_pages);
  if (last_cpu_ns_ == 0 || read_.rss_pages == 0) return pages * kPageCostNs;
  return static_cast<std::int64_t>(static_cast<double>(last_cpu_ns_) * static_cast<double>(pages) /
                                   static_cast<double>(read_.rss_pages));
}

std::optional<trace::WalkTrigger> WalkPolicy::observe(const PollPoint& point) {
  if (!has_walk_) return trace::WalkTrigger::start;
  if (movement(point, last_change_) > kNoisePages) last_change_ = point;
  const std::uint64_t moved = movement(point, last_walk_);
  const std::int64_t since_ns = point.time_ns - last_walk_.time_ns;
  const bool due = is_due(point);
  // It may be the last for a long time: what the walks on the way up took does not keep it waiting.
  const bool worth = rest_pending_ || (moved > 0 && last_change_.time_ns > last_walk_.time_ns);
  if (worth && due && point.time_ns - last_change_.time_ns >= kQuietNs) return trace::WalkTrigger::quiet;
  if (static_cast<double>(since_ns) < static_cast<double>(last_walk_ns_) * costs_between_) return std::nullopt;
  if (due && is_advised_) return trace::WalkTrigger::advise;
  if (due && moved > noticeable_pages(last_walk_)) return trace::WalkTrigger::growth;
  if (since_ns >= kIntervalNs) return trace::WalkTrigger::interval;
  return std::nullopt;
}

bool WalkPolicy::is_known(const PollPoint& point) const {
  return point.rss_pages <= largest_.rss_pages && point.live_bytes <= largest_.live_bytes;
}

// What grows from wave to wave is walked at each peak, which is larger than ever. What it falls back to between them
// has its turn all the same, as it tells what is kept. The gaps differ, or all walks might meet the same moment of each
// wave.
bool WalkPolicy::is_due(const PollPoint& point) const {
  if (resizing(point, last_walk_) <= noticeable_pages(last_walk_))
    return point.time_ns - last_walk_.time_ns >= gap_ns(point, kSameSizeParts);
  if (!is_known(point)) return true;
  constexpr double kGoldenRatio = 0.618034;
  const double part = kLeastGapPart + std::fmod(kGoldenRatio * static_cast<double>(known_walks_), 1);
  return static_cast<double>(point.time_ns - last_known_ns_) >=
         part * static_cast<double>(gap_ns(point, kKnownSizeParts));
}

std::int64_t WalkPolicy::gap_ns(const PollPoint& point, double parts) const {
  const auto age_ns = static_cast<double>(point.time_ns - first_ns_);
  const double young_ns = std::min(age_ns / kYoungParts, static_cast<double>(kYoungGapNs)) / age_parts_;
  const double old_ns = (age_ns - static_cast<double>(WalkBudget::kFirstNs)) / (parts * age_parts_);
  return static_cast<std::int64_t>(std::clamp(old_ns, young_ns, static_cast<double>(kIntervalNs)));
}

void WalkPolicy::forget() {
  has_walk_ = false;
  largest_ = {};
}

bool WalkPolicy::has_moved(const PollPoint& point) const {
  return !has_walk_ || movement(point, last_walk_) > kNoisePages;
}

std::int64_t LimitPolicy::observe(std::int64_t now_ns, std::int64_t left_bytes) {
  if (newer_.time_ns == 0 || now_ns - newer_.time_ns >= kRateNs)
    from_ = std::exchange(newer_, {.time_ns = now_ns, .left_bytes = left_bytes});
  if (from_.time_ns == 0) return 0;
  const auto used = static_cast<double>(from_.left_bytes - left_bytes);
  const auto elapsed_ns = static_cast<double>(now_ns - from_.time_ns);
  return static_cast<std::int64_t>(std::max(used, 0.0) / elapsed_ns * kAheadNs);
}

void WalkPolicy::walked(const PollPoint& point, std::int64_t cpu_ns, bool is_rest_pending) {
  if (!has_walk_) first_ns_ = last_known_ns_ = point.time_ns;
  if (has_walk_ && is_known(point)) {
    last_known_ns_ = point.time_ns;
    ++known_walks_;
  }
  largest_.rss_pages = std::max(largest_.rss_pages, point.rss_pages);
  largest_.live_bytes = std::max(largest_.live_bytes, point.live_bytes);
  last_walk_ = last_change_ = point;
  rest_pending_ = is_rest_pending;
  is_advised_ = false;
  has_walk_ = true;
  last_cpu_ns_ = last_walk_ns_ = cpu_ns;
}

}  // namespace whyrss
