// Reads the names of ELF files in child processes, so that no file can harm or hold up the caller.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/name_table.h"

namespace whyrss {

struct ReadLimits {
  int cpu_s = 20;  // for one file: enough for the largest libraries
  int wall_s = 60;
};

struct ModuleToRead {
  Module module;
  std::vector<std::uint64_t> addresses;  // ascending
};

struct ModuleAnswer {
  ModuleNames names;  // of the addresses that were got to
  std::string note;   // "" or why some or all are missing
};

// One child per file, as many at a time as there are cores. Answers in the order of `modules`.
// Forks; the caller must have no other thread that holds locks the child needs (whyrss has none).
std::vector<ModuleAnswer> read_modules(const std::vector<ModuleToRead>& modules, const ReadLimits& limits);

}  // namespace whyrss
