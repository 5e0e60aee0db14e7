// Lists of nodes and ranks as people and Slurm write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "support/result.h"

namespace whyrss {

// More are a mistake, or an attack.
inline constexpr std::size_t kMostNodes = 1'000'000;

// Of a name in a table of text, nodes' and others'.
inline constexpr std::size_t kNameColumns = 56;

// "node[001-003,7],gpu1" to its names, in order.
Result<std::vector<std::string>> expand_nodes(std::string_view list);

// "0-36,38" of sorted numbers, each once. At most `most_ranges` ranges, then "...".
std::string ranges_text(const std::vector<std::int64_t>& numbers, std::size_t most_ranges = 8);

}  // namespace whyrss
