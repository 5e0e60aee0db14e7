// Which nodes and ranks a job should have, and which of them are not there.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "job/part.h"
#include "support/result.h"

namespace whyrss {

struct ExpectedNodes {
  std::optional<std::size_t> count;  // nothing: not given
  std::vector<std::string> missing;  // by name, where names are known
  std::size_t present = 0;           // kernels with a recording
};

// By the lists of the index. A node is there under any of its names, with or without its domain.
ExpectedNodes expected_nodes(const PartIndex& index);

// "1 of 577 nodes is missing: node0577", "" when all are there or no list says which should be.
std::string missing_text(const ExpectedNodes& nodes);

// A list as node_lists holds it: names that can be expanded, or a number.
Status check_node_list(const std::string& list);

}  // namespace whyrss
