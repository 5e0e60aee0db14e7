// The last walk of a process, and walks on request: asks the reader for a page walk, and waits for it. As observe.h:
// safe in any thread, in signal handlers and before main.
#pragma once

#include <cstdint>

#include "shim/events/thread_state.h"

namespace whyrss::shim {

// What the program kept is about to be freed, or left: the reader gets a bounded moment for its last walk, and walks no
// more on its own. Once each for the process and its interpreter; `what` of trace::Teardown. The end of a script asks
// for the walk only, once a second at most.
void observe_teardown(std::int32_t what) noexcept;
// An interpreter runs. True: one was torn down before, and has been started again.
bool observe_interpreter() noexcept;
// The process is about to leave; the last walk is taken where no teardown was reported a moment ago.
void observe_exit(int status) noexcept;

// The program is about to forbid itself system calls: the walk that it could not ask for later is taken now.
void last_walk_before_filter(ThreadState& thread) noexcept;

// Asks the reader for a page walk now and waits for it: until 0.5 s after the reader's last sign of life (more for
// large processes) and 2 s at most, or for `longest_ns` where that is more. False: it did not come, which is counted.
bool request_walk(std::uint64_t longest_ns = 0) noexcept;

}  // namespace whyrss::shim
