// The seam between the entry points and the trace: one function per shape of event (those of processes: see
// process_events.h and final_walk.h). All are safe in any thread, in signal handlers and before main;
// they keep errno, allocate nothing and do nothing while our own code runs below them.
// Order: an entry calls observe_release (observe_heap.h) and, of munmap, observe_range before the real function, all
// else after it (trace_format.h says why).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "shim/events/caller.h"
#include "shim/events/mapping.h"
#include "shim/trace/trace_format.h"

namespace whyrss::shim {

void observe_map(const Caller& caller, const Mapping& mapping) noexcept;
// A file in memory that was just made.
void observe_memory_file(const Caller& caller, int fd) noexcept;
// What a call has opened which makes or empties files: one that has something in it, or is not in memory, is left out.
void observe_empty_file(const Caller& caller, int fd) noexcept;
// unmap, protect, advise, break_moved (address = new break, size = old break).
void observe_range(const Caller& caller, trace::RecordKind kind, const void* address, std::size_t size_bytes,
                   std::int64_t argument) noexcept;
void observe_remap(const Caller& caller, const Mapping& before, const Mapping& after) noexcept;
// After mlock and its like; logs nothing, but a walk of the end will be worth it.
void observe_locked(std::size_t size_bytes) noexcept;

// What the process comes to now. Nothing where it may not be asked.
void observe_size() noexcept;
void observe_mark(trace::MarkKind kind, std::string_view text) noexcept;
// What the allocator says about itself now.
void observe_allocator_stats(trace::StatsMoment moment) noexcept;
// Why something is off or missing.
void observe_note(std::string_view text) noexcept;

}  // namespace whyrss::shim
