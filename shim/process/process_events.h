// Events of processes and threads. As observe.h: safe in any thread, in signal handlers and before main.
#pragma once

#include <cstdint>
#include <string_view>

#include "shim/events/caller.h"
#include "shim/trace/trace_format.h"

namespace whyrss::shim {

// Before a fork. Async-signal-safe.
void note_fork() noexcept;

// In the parent: a child by fork (record kind fork), posix_spawn or vfork (spawn; pid 0 = not known).
void observe_child(const Caller& caller, trace::RecordKind kind, std::uint32_t pid) noexcept;
// In the parent: a child that ended was waited for.
void observe_ended_child(std::uint32_t pid, long max_rss_kib) noexcept;
// About to replace the image; everything written so far is handed over.
void observe_exec(std::string_view program) noexcept;
void observe_exec_failed(std::string_view program) noexcept;
// Of a pthread_create call.
struct ThreadCreation {
  std::uint32_t stack_id = trace::kNoStack;
  std::uint32_t tid = 0;  // who calls; 0: not known
};
ThreadCreation observe_thread_creation(const Caller& caller, std::uint32_t starting) noexcept;
// In the new thread: its records.
void observe_thread_start(ThreadCreation creation, const void* stack_pointer) noexcept;

}  // namespace whyrss::shim
