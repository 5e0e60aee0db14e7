#pragma once

#include <cstdint>

namespace whyrss {

inline constexpr std::uint64_t kPageBytes = 4096;  // x86-64

}  // namespace whyrss
