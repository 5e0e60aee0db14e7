// Starts the collector from inside the target, when only LD_PRELOAD and WHYRSS_OUTPUT are set.
// The program never notices: the processes are cloned without atfork handlers and without SIGCHLD, the
// one in the middle is reaped here by its pid, the collector itself is an orphan in its own session.
#pragma once

#include "shim/sys/raw_io.h"

namespace whyrss::shim {

// Runs `whyrss collect --output DIR --target PID --ready-fd FD` and waits (at most 10 s) for its line
// "WHYRSS_SESSION value", before which "?TEXT" may say what does not work. True: `session_value` holds the value.
// False: `mistake` says why not. In the constructor only, while the process is young.
bool start_collector(const char* output_dir, const char* const* environment, Text& session_value,
                     Text& mistake) noexcept;

// Adds `entry` ("LD_PRELOAD=...") without our library to `result`; `own` is how it named our library.
// False: nothing of ours was in it.
bool without_own_preload(std::string_view entry, Text& result, Text& own) noexcept;

}  // namespace whyrss::shim
