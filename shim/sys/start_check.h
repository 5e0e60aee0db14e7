// What this process may not do when the library begins in it: under a seccomp filter that an ancestor has installed
// each system call may be the end. Asked once per image, with calls that the loader has just made itself.
#pragma once

#include <string_view>

namespace whyrss::shim {

// Why nothing may be traced here; empty: it may.
std::string_view reason_against_start() noexcept;

// A filter kills a process that asks for a perf event.
bool is_event_deadly() noexcept;

// A filter kills for process_vm_writev.
bool is_copy_deadly() noexcept;

// A debugger or tracer was attached at the start.
bool is_traced() noexcept;

// A filter came after the start: it may kill a process that makes a system call that it does not know.
bool has_new_seccomp_filter() noexcept;

}  // namespace whyrss::shim
