// How rare samples become where a thread, or all threads of Python, allocate much: so many are taken at once, and then
// so many a millisecond. What is loaded in one go is known well, and a program that allocates a gigabyte a second for
// long spends some 1 % of its time on samples.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>

#include "shim/trace/clock.h"

namespace whyrss::shim {

// Zero at first, as if it had rested. One writer at a time; where two interpreters write one at once a count may be
// lost.
class SamplingPace {
 public:
  // Counts a sample.
  void count() noexcept {
    const std::uint32_t samples = get(samples_) + 1;
    set(samples_, samples);
    if (samples % kSamplesBetween != 0) return;
    const std::uint64_t now = trace::now_ns();
    const std::uint64_t ms = (now - get(read_ns_)) / 1'000'000;
    set(read_ns_, now);
    const std::uint64_t credit = std::min<std::uint64_t>(kMostCredit, get(credit_) + ms * kCreditPerMs);
    const auto left = static_cast<std::uint32_t>(credit - std::min<std::uint64_t>(credit, kSamplesBetween));
    // While less than half of it, a quarter ... is left.
    const int halvings = std::countl_zero(left | 1) - std::countl_zero(kMostCredit - 1);
    set(credit_, left);
    set(coarseness_, static_cast<std::uint32_t>(std::clamp(halvings, 0, kCoarsest)));
  }

  // By which power of 2 the next ones are to be rarer.
  [[nodiscard]] std::uint32_t coarseness() noexcept { return get(coarseness_); }

 private:
  static constexpr std::uint32_t kMostCredit = 4096, kCreditPerMs = 4;
  static constexpr std::uint32_t kSamplesBetween = 64;  // readings of the clock
  static constexpr int kCoarsest = 4;                   // powers of 2 by which the mean distance may grow

  template <class Number>
  static Number get(Number& place) noexcept {
    return std::atomic_ref(place).load(std::memory_order_relaxed);
  }
  template <class Number>
  static void set(Number& place, Number value) noexcept {
    std::atomic_ref(place).store(value, std::memory_order_relaxed);
  }

  std::uint64_t read_ns_ = 0;
  std::uint32_t samples_ = 0, credit_ = 0, coarseness_ = 0;
};

}  // namespace whyrss::shim
