// Objects of CPython's small-object allocator, one by one, in exact mode: as blocks of malloc are, and kept apart from
// their counts. Addresses and sizes are those of the pool's blocks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/stack_capture.h"

namespace whyrss::shim {

void observe_object(const Caller& caller, std::uintptr_t block, std::size_t size_bytes) noexcept;
// Before the real release.
void observe_object_release(std::uintptr_t block) noexcept;
// The resize announced by observe_object_release(block) failed.
void observe_object_release_undone(std::uintptr_t block) noexcept;

}  // namespace whyrss::shim
