// Which moments of a long recording the page keeps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "model/account.h"

namespace whyrss {

// How many of each process may stay so that all together are at most `most`: small ones keep theirs.
std::size_t share_of_each(std::vector<std::size_t> counts, std::size_t most);

// Of `count` values in a row at most about `most`, in order: of each stretch the smallest, the largest and the last;
// the first; and those that `wanted` lists.
std::vector<std::uint32_t> thinned(std::size_t count, std::size_t most,
                                   const std::function<std::int64_t(std::size_t)>& value,
                                   const std::vector<std::uint32_t>& wanted = {});

// The snapshots of a process that the page shows: about `most`, and those where it, or one cause of it, had most.
std::vector<std::uint32_t> shown_snapshots(const ProcessAccount& process, std::size_t most);

}  // namespace whyrss
