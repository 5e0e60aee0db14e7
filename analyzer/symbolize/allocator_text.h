// Which allocator a file holds whose functions have no names: its messages are still there.
#pragma once

#include <elfutils/libdwfl.h>

#include <string>

namespace whyrss {

// "jemalloc" or "mimalloc"; "": neither, or both.
std::string allocator_by_text(Dwfl_Module* module);

}  // namespace whyrss
