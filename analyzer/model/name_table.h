// Names of native code by ELF file and address: what symbolize/ finds, and what is kept beside a recording.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "model/stack_table.h"

namespace whyrss {

struct ModuleNames {
  // Every address that was looked up, innermost call first; empty: it has no name.
  std::map<std::uint64_t, std::vector<CodeLine>> lines;
  bool has_debug_info = false;  // or needs none; else `line` and inlined calls are missing throughout
  std::string allocator;        // that the file holds, where functions have no names: "jemalloc"; "": none known
  int cut_at_cpu_s = 0;         // reading took longer than this and was given up; 0: it was not
};

using NameTable = std::map<Module, ModuleNames>;

}  // namespace whyrss
