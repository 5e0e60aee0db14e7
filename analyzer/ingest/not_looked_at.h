// Memory that a poll or the kernel's mark tells, and no look and no event.
#pragma once

#include <algorithm>
#include <cstdint>

#include "model/account.h"

namespace whyrss {

// The account's RSS and its slices grow by it.
inline void add_not_looked_at(Account& account, std::int64_t bytes) {
  if (bytes <= 0) return;
  const auto found =
      std::ranges::find(account.slices, Cause::not_looked_at, [](const Slice& slice) { return slice.site.cause; });
  Slice& slice = found != account.slices.end()
                     ? *found
                     : account.slices.emplace_back(Slice{.site = {.cause = Cause::not_looked_at}});
  slice.bytes += bytes;
  slice.exclusive_bytes += bytes;
  account.rss_bytes += bytes;
}

}  // namespace whyrss
