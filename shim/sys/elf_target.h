// Can this library be preloaded into the program that is about to run? Where it cannot (32-bit, musl or
// another loader, a sanitizer runtime that wants to be first), the program would print an error or not
// start at all with our LD_PRELOAD entry.
#pragma once

#include <string_view>

#include "shim/sys/raw_io.h"

namespace whyrss::shim {

// Room for the paths of "#!" lines, given by the caller: too large for small stacks.
struct TargetTexts {
  Text current, interpreter;
};

// `path` as given to execve: follows "#!" lines like the kernel does. Static and setuid programs, and
// what is not a program at all, ignore LD_PRELOAD: true. One descriptor is open for a moment.
bool preload_loads_in(const char* path, TargetTexts& texts) noexcept;

// The path of an open file below /proc/self/fd (fexecve, execveat with AT_EMPTY_PATH).
void add_descriptor_path(int fd, Text& path) noexcept;

// What execvp would run for `file`: the first executable below PATH. False when there is none.
bool search_path(const char* file, const char* path_list, Text& found) noexcept;

}  // namespace whyrss::shim
