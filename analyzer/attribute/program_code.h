// Which Python code is the program's own, although it lies where libraries are installed: that of a program that a
// package manager or pip has installed, and of `python -m`. It is known from how the stacks of a recording begin.
#pragma once

#include <set>
#include <string>

#include "model/stack_table.h"

namespace whyrss {

// A place is a top package of site-packages, dist-packages or the standard library, or a module there that is none:
//   - the main module is in it: started by its path, or by `python -m`;
//   - a script in a folder for commands (bin, sbin ...) that defines no function has called its main(), or has its
//   name;
//   - "<string>", where `python -c` runs the program.
// Such a script is a launcher. `package_folders` (with their slashes) count as site-packages, but for one where the
// main module lies: `pip install --target` puts packages beside a program as well.
ProgramCode find_program_code(const StackTable& stacks, const std::set<std::string>& package_folders = {});

}  // namespace whyrss
