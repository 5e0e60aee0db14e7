// Exact mode: every small block as a compact record (trace_format.h). The thread is entered and Busy held by the
// caller. A lease's compact records come after a clock record, and tell their time as what has gone by since the one
// before.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/thread_state.h"

namespace whyrss::shim {

// Once per image, before the first event: what ticks are.
void start_ticks() noexcept;

void emit_compact_allocate(ThreadState& thread, std::uintptr_t block, std::size_t usable,
                           std::uint32_t stack_id) noexcept;
void emit_compact_release(ThreadState& thread, std::uintptr_t block) noexcept;

}  // namespace whyrss::shim
