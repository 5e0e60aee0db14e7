// malloc_trim(0) at the end of a process, for `whyrss compare-allocators`: how much of what glibc keeps it would
// give back. Only when WHYRSS_OPTS asks for it.
#pragma once

namespace whyrss::shim {

// A look at the pages, the mark trace::kTrimMark, malloc_trim(0), another look; once in a process, and only where
// glibc serves malloc. Not in signal handlers: it takes the locks of malloc. Keeps errno.
void trim_at_end() noexcept;

}  // namespace whyrss::shim
