// No failure without a line on stderr: what is said there, and what is said for a program that cannot go on.
#pragma once

#include <string_view>

namespace whyrss {

inline constexpr std::string_view kOutOfMemory = "out of memory (ulimit -v, ulimit -d, or a limit of the container)";

// "whyrss: <text>" and a line break. Allocates nothing.
void say(std::string_view text);
// Whether this process, or the one that it was forked from, has said anything.
bool has_said();

// From now on a signal by which the kernel, or our own code, ends this process is reported before it does: a stack or a
// CPU time that is too small, a broken invariant. So is an exception that no code catches; that ends with `status`. A
// file size limit fails the write instead. None of this outlives an exec. A second call changes the status alone.
void install_last_words(int status);

}  // namespace whyrss
