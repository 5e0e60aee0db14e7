// The rules about copies since fork: fork-cow-refcount, workers that copied inherited CPython objects by reading them;
// fork-cow-collector, workers whose garbage collector did; fork-cow-write, processes that wrote to other memory that a
// fork had made shared; and about inherited memory that no process copied: fork-left-alone, a child that alone still
// has it, as the processes it shared it with are gone.
#pragma once

#include <vector>

#include "report/verdicts/verdict.h"

namespace whyrss {

void fork_cow_objects(const View& view, std::vector<Verdict>& verdicts);
void fork_cow_write(const View& view, std::vector<Verdict>& verdicts);
void fork_left_alone(const View& view, std::vector<Verdict>& verdicts);

// Of what this child inherited: pages that it has not copied yet and that another process maps too, in bytes.
std::int64_t left_to_copy(const ProcessView& process);

// Whether one of them speaks about this child's copies.
bool is_reported_copy(const View& view, const ProcessView& process);

}  // namespace whyrss
