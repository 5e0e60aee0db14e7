// Lines and inlined calls from DWARF.
#pragma once

#include <elfutils/libdwfl.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "model/stack_table.h"

namespace whyrss {

// For each of `addresses` (ascending) that DWARF knows: calls `found` with its index and its code lines,
// innermost first. The last is the function that has the code; the others are calls that were inlined
// there, each with the line that it stands at, so that lines[i + 1].line is where lines[i] was called.
// Reads only the units that hold one of the addresses.
//
// False when the module has no DWARF.
bool find_dwarf_lines(Dwfl_Module* module, const std::vector<std::uint64_t>& addresses,
                      const std::function<void(std::size_t, std::vector<CodeLine>)>& found);

}  // namespace whyrss
