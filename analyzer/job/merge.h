// Parts to one part: the union of their recordings.
//
// A recording is known by session, host and boot id. Where several parts hold it and differ (it was reduced while it
// ran, and again later), one is taken: the complete one, then the longer one, then the one with more processes, then
// by its bytes. Lists of nodes are united too. Union and maximum do not depend on order or grouping, and nothing is
// truncated: all trees of merges of the same parts are the same bytes.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "job/part.h"
#include "support/result.h"

namespace whyrss {

// A part, of a file or just reduced. `read` gives a block as stored.
struct MergeInput {
  std::string name;
  PartIndex index;
  std::function<Result<std::string>(std::size_t entry)> read;
};

struct MergePlan {
  struct Source {
    std::size_t input = 0, entry = 0;
  };
  PartIndex index;
  std::vector<Source> sources;  // of each entry of the index
  std::size_t repeated = 0;     // recordings that a part before had already
};

// Fails where recordings are of different jobs, and names two parts; unless `several_jobs`. One that does not know its
// job fits any.
Result<MergePlan> plan_merge(const std::vector<MergeInput>& inputs, bool several_jobs);

// Reads each block once, and holds one at a time.
Status write_merge(const MergePlan& plan, const std::vector<MergeInput>& inputs,
                   const std::function<void(std::string_view)>& write);

}  // namespace whyrss
