#include "support/clock.h"

#include <fmt/format.h>

namespace whyrss {

std::string rfc3339(std::int64_t realtime_ns) {
  const auto seconds = static_cast<time_t>(realtime_ns / 1'000'000'000);
  tm parts{};
  gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec, realtime_ns / 1000 % 1'000'000);
}

}  // namespace whyrss
