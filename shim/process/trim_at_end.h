// What `whyrss compare-allocators` wants of a process's end, by WHYRSS_OPTS at_end: a last walk that always comes
// (the usual one is left out where little has moved), or malloc_trim(0) between two, which tells how much of what
// glibc keeps it would give back.
#pragma once

namespace whyrss::shim {

// Once in a process. For at_end=trim, and where glibc serves malloc: a walk, the mark trace::kTrimMark, the trim and
// another walk. Not in signal handlers: the trim takes the locks of malloc. Keeps errno.
void walk_and_trim_at_end() noexcept;

}  // namespace whyrss::shim
