// Which small blocks are logged in sampled mode: those that contain a point of a Poisson process along the bytes that
// a thread allocates. The distance to the next point is exponential, so a block of n bytes is chosen with the
// probability 1 - exp(-n / mean), whatever was allocated before it.
// Arithmetic alone: any thread, signal handlers, no libm.
#pragma once

#include <bit>
#include <cstdint>

namespace whyrss::shim {

// SplitMix64: the next of a sequence that `state` is the place in.
inline std::uint64_t next_random(std::uint64_t& state) noexcept {
  std::uint64_t value = state += 0x9e3779b97f4a7c15ULL;
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ value >> 27) * 0x94d049bb133111ebULL;
  return value ^ value >> 31;
}

// -ln(u) for u = (random >> 11 | 1) / 2^53, to 1e-9: the exponent apart, and of the mantissa m in [0.5, 1) the series
// of the inverse hyperbolic tangent at z = (1 - m') / (1 + m') with m' = m * sqrt(2), so that |z| < 0.172.
inline double negative_log(std::uint64_t random) noexcept {
  constexpr double kLn2 = 0.693147180559945309417;
  constexpr double kSqrt2 = 1.41421356237309504880;
  const std::uint64_t u = random >> 11 | 1;  // of 2^53
  const int zeros = std::countl_zero(u) - 11;
  const double mantissa = static_cast<double>(u << zeros) * 0x1p-53;  // u = mantissa * 2^(53 - zeros)
  const double z = (1 - mantissa * kSqrt2) / (1 + mantissa * kSqrt2);
  const double z2 = z * z;
  const double log = 2 * z * (1 + z2 * (1.0 / 3 + z2 * (1.0 / 5 + z2 * (1.0 / 7 + z2 * (1.0 / 9 + z2 / 11)))));
  return (zeros + 0.5) * kLn2 + log;
}

// Bytes up to and with the one that holds the next point, at least 1.
inline std::uint64_t next_gap(std::uint64_t& state, std::uint64_t mean_bytes) noexcept {
  return static_cast<std::uint64_t>(negative_log(next_random(state)) * static_cast<double>(mean_bytes)) + 1;
}

}  // namespace whyrss::shim
