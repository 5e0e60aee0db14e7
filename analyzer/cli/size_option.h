// Sizes as people type them.
#pragma once

#include <cstdint>
#include <string>

#include "support/result.h"

namespace whyrss {

// "64KiB", "2GiB", "1.5 MiB", "100000", "64K" (= KiB), "10MB" (= 10,000,000). Bytes, not negative.
Result<std::int64_t> parse_size(const std::string& text);

}  // namespace whyrss
