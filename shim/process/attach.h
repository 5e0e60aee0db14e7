// A process joins the session: slot, writer, AttachRecord.
#pragma once

#include "shim/events/thread_state.h"
#include "shim/trace/trace_format.h"

namespace whyrss::shim {

// Finds out which library serves malloc. Once per image; asks the loader.
void find_allocator() noexcept;

// Makes this process one of the session and `thread` its first thread: claims a slot, fills the control
// page's writer, writes the AttachRecord. The caller holds Busy.
void attach_process(ThreadState& thread, trace::Born born) noexcept;

// A thread of an attached process gets its writer; whatever it held of another generation is dropped.
void start_thread(ThreadState& thread, std::uint64_t generation) noexcept;

// Lets the collector read this process's memory where Yama would forbid it. Again in every fork child.
void permit_reader() noexcept;

}  // namespace whyrss::shim
