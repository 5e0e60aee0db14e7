// Memory of the shim itself in the trace (cause `whyrss`). The thread is entered and Busy held by the caller.
#pragma once

#include <cstddef>

#include "shim/events/thread_state.h"

namespace whyrss::shim {

void report_own_memory(ThreadState& thread, const void* memory, std::size_t size_bytes) noexcept;
void give_back_own_memory(ThreadState& thread, void* memory, std::size_t size_bytes) noexcept;

}  // namespace whyrss::shim
