// Gzip by zlib, for what this program writes.
#pragma once

#include <string>
#include <string_view>

namespace whyrss {

// `level`: of zlib, 1 (fast) to 9 (small). Any size: zlib's own counters have 32 bits.
std::string gzipped(std::string_view bytes, int level);

}  // namespace whyrss
