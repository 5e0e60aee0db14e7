// What a child process does with one ELF file, and how its answer travels.
#pragma once

#include <string>

#include "symbolize/module_reader.h"

namespace whyrss {

// In the child: gives up what it does not need, reads, writes the answer to `pipe_fd` and ends.
[[noreturn]] void read_module_as_child(int pipe_fd, const ModuleToRead& wanted, const ReadLimits& limits);

// The answer, as far as it came: an answer that was cut off keeps what came before. `finished`: it came whole.
ModuleAnswer parse_module_answer(const std::string& bytes, bool& finished);

}  // namespace whyrss
