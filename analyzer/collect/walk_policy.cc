#include "collect/walk_policy.h"

#include <algorithm>
#include <utility>

namespace whyrss {
namespace {

std::uint64_t distance(std::uint64_t a, std::uint64_t b) { return a > b ? a - b : b - a; }

constexpr std::uint64_t kPageBytes = 4096;

}  // namespace

std::uint64_t movement(const PollPoint& a, const PollPoint& b) {
  const auto [low, high] = std::minmax(a.live_bytes, b.live_bytes);
  const std::uint64_t live = (static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low)) / kPageBytes;
  return std::max({distance(a.rss_pages, b.rss_pages), distance(a.faults, b.faults), live});
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
  // No purse holds more: what takes longer waits until it is full.
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
  if (asked_rss_pages_ == 0) {  // it has just told how it starts
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
  const std::int64_t since_ns = now_ns - looked_ns_;
  if (trigger == trace::WalkTrigger::request) {
    const bool moved = distance(rss_pages, rss_pages_) >= std::max(kGrownPages, rss_pages_ / kMovedPart);
    return purse_ns(now_ns) > 0 || (moved && since_ns >= kMovedCostsBetween * last_cpu_ns_);
  }
  const bool worth = rss_pages >= rss_pages_ + kGrownPages || since_ns >= kIntervalNs;
  return worth && since_ns >= kCostsBetween * last_cpu_ns_;
}

std::int64_t ViewPolicy::purse_ns(std::int64_t now_ns) const {
  return std::min(purse_ns_ + (now_ns - looked_ns_) / kCostsBetween, kPurseNs);
}

void ViewPolicy::looked(std::int64_t now_ns, std::int64_t cpu_ns, std::uint64_t rss_pages) {
  purse_ns_ = purse_ns(now_ns) - cpu_ns;
  looked_ns_ = now_ns;
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
  // It may be the last for a long time: the way up has no right to keep it waiting.
  const bool worth = owes_rest_ || (moved > 0 && last_change_.time_ns > last_walk_.time_ns);
  if (worth && point.time_ns - last_change_.time_ns >= kQuietNs) return trace::WalkTrigger::quiet;
  const auto since_ns = static_cast<double>(point.time_ns - last_walk_.time_ns);
  if (since_ns < static_cast<double>(last_look_ns_) * costs_between_) return std::nullopt;
  if (moved > std::max(kMovePages, last_walk_.rss_pages / 100)) return trace::WalkTrigger::growth;
  if (point.time_ns - last_walk_.time_ns >= kIntervalNs) return trace::WalkTrigger::interval;
  return std::nullopt;
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

void WalkPolicy::walked(const PollPoint& point, std::int64_t cpu_ns, bool owes_rest) {
  last_walk_ = last_change_ = point;
  owes_rest_ = owes_rest;
  has_walk_ = true;
  last_cpu_ns_ = last_look_ns_ = cpu_ns;
}

}  // namespace whyrss
