// Function names from symbol tables.
#pragma once

#include <elfutils/libdwfl.h>

#include <cstdint>
#include <string>
#include <vector>

namespace whyrss {

// The name of the innermost symbol that covers each of `addresses` (ascending), demangled; "" without one.
// One pass over the tables, whatever their size: nothing is sorted or copied.
std::vector<std::string> symbol_names(Dwfl_Module* module, const std::vector<std::uint64_t>& addresses);

}  // namespace whyrss
