// Hashes of stacks, one value after the other. The reader never sees them.
#pragma once

#include <cstdint>

namespace whyrss::shim {

inline constexpr std::uint64_t kHashSpread = 0x9e3779b97f4a7c15ULL;  // 2^64 / the golden ratio, odd

inline std::uint64_t mix(std::uint64_t hash, std::uint64_t value) noexcept {
  hash = (hash ^ value) * kHashSpread;
  return hash ^ (hash >> 32);
}

}  // namespace whyrss::shim
