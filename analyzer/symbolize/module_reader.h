// Reads one module's names in a child process, so that no file can harm or hold up the report.
#pragma once

#include <string>
#include <vector>

#include "model/stack_table.h"
#include "symbolize/elf_names.h"

namespace whyrss {

struct ModuleNames {
  std::vector<AddressName> names;  // those found; any order
  std::string note;                // "" or why some or all are missing
};

// Forks; the caller must have no other thread that holds locks the child needs (the report has none).
ModuleNames read_module_names(const Module& module, const std::vector<std::uint64_t>& addresses);

}  // namespace whyrss
