// Names for native frames, from the ELF files that a recording refers to and from what is known of them.
#pragma once

#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "model/name_table.h"
#include "symbolize/module_reader.h"

namespace whyrss {

struct Symbolized {
  std::vector<std::string> notes;  // for the report: modules that could not be used, or are no longer here
  bool learned = false;            // `names` has become more
};

// Sets function, file and line of every native frame whose module is in `names`, or whose module's file is here
// and is the one that was recorded (same build id); adds to `names` what it read. The rest keeps "" and 0.
//
// A file that has no build id is the one that was recorded where it did not change after `recorded_until`.
//
// ELF files are foreign bytes and the parsers are not ours: each module is read in a child process of
// its own with bounded time and memory, so that a damaged or hostile one costs its names only.
Symbolized symbolize(StackTable& stacks, NameTable& names, const ReadLimits& limits = {},
                     std::optional<std::time_t> recorded_until = std::nullopt);

}  // namespace whyrss
