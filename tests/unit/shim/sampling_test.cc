// The distances between sampled bytes: exponential, without libm.
#include "shim/heap/sampling.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>

namespace whyrss::shim {
namespace {

TEST(Sampling, TheLogarithmIsTheLibrarys) {
  std::uint64_t state = 1;
  for (int round = 0; round < 100'000; ++round) {
    // All magnitudes: the smallest numbers are the longest distances.
    const std::uint64_t random = next_random(state) >> round % 64;
    const double exact = -std::log(std::ldexp(static_cast<double>(random >> 11 | 1), -53));
    ASSERT_NEAR(negative_log(random), exact, 1e-8 * std::max(exact, 1.0)) << random;
  }
  EXPECT_GE(negative_log(UINT64_MAX), 0.0);
}

// Random numbers of a fixed seed: the same in every run.
TEST(Sampling, DistancesHaveTheMeanAndTheShape) {
  constexpr std::uint64_t kMean = 65'536;
  constexpr int kCount = 1'000'000;
  std::uint64_t state = 42;
  double sum = 0;
  double squares = 0;
  std::array<int, 4> beyond{};  // as many means
  for (int round = 0; round < kCount; ++round) {
    const std::uint64_t gap = next_gap(state, kMean);
    ASSERT_GE(gap, 1U);
    const double means = static_cast<double>(gap) / kMean;
    sum += means;
    squares += means * means;
    for (unsigned number = 0; number < beyond.size(); ++number) beyond[number] += means > number + 1.0 ? 1 : 0;
  }
  const double error = 5 / std::sqrt(kCount);
  EXPECT_NEAR(sum / kCount, 1.0, error);
  EXPECT_NEAR(squares / kCount, 2.0, error * 5);  // its own deviation is the root of 20
  for (unsigned number = 0; number < beyond.size(); ++number)
    EXPECT_NEAR(static_cast<double>(beyond[number]) / kCount, std::exp(-(number + 1.0)), error / 2);
}

TEST(Sampling, ADistanceOfOneByteIsRounded) {
  std::uint64_t state = 7;
  int ones = 0;
  for (int round = 0; round < 10'000; ++round) ones += next_gap(state, 1) == 1 ? 1 : 0;
  EXPECT_NEAR(ones / 10'000.0, 1 - std::exp(-1), 0.03);
}

}  // namespace
}  // namespace whyrss::shim
