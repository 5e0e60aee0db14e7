// The life of a session in this image: the constructor attaches it or starts a collector first; a forked child attaches
// anew; the last act of a thread. session_state.h says what there is to know of it.
#pragma once

#include <string_view>

#include "shim/events/session_state.h"
#include "shim/events/thread_state.h"

namespace whyrss::shim {

// In the constructor: attaches, or starts the collector first when only WHYRSS_OUTPUT is set.
void start_session(const char* const* environment) noexcept;

// A thread that ends says so from now on. In start_session; again where libpthread came later (before glibc 2.34).
void watch_thread_ends() noexcept;

// In a fork child, before the program gets it back.
void attach_forked_child(ThreadState& thread) noexcept;

// Switches tracing off for good in this image, with one line on stderr when `detail` is given.
void switch_off(std::string_view what, std::string_view detail) noexcept;

}  // namespace whyrss::shim
