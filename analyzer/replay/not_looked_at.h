// Memory that a poll or the kernel's mark tells, and no walk and no event.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "model/account.h"

namespace whyrss {

// The account's RSS and its slices grow by it.
inline void add_not_looked_at(Account& account, std::int64_t bytes) {
  if (bytes <= 0) return;
  std::vector<Slice>& slices = account.slices.open();
  const auto found =
      std::ranges::find(slices, Cause::not_looked_at, [](const Slice& slice) { return slice.site.cause; });
  Slice& slice = found != slices.end() ? *found : slices.emplace_back(Slice{.site = {.cause = Cause::not_looked_at}});
  slice.bytes += bytes;
  slice.exclusive_bytes += bytes;
  account.rss_bytes += bytes;
}

}  // namespace whyrss
