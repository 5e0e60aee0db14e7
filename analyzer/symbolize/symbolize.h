// Names for native frames, from the ELF files that a recording refers to.
#pragma once

#include <string>
#include <vector>

#include "model/stack_table.h"

namespace whyrss {

// Sets function, file and line of every native frame in `wanted` whose module's file is here and is the
// one that was recorded (same build id). The rest keeps "" and 0. Returns one note per module that could
// not be used, for the report.
//
// ELF files are foreign bytes and the parsers are not ours: each module is read in a child process of
// its own with bounded time and memory, so that a damaged or hostile one costs its names only.
std::vector<std::string> symbolize(StackTable& stacks, const std::vector<StackId>& wanted);

}  // namespace whyrss
