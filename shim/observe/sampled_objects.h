// Sampled mode: the allocators that stand before those of CPython's domains "mem" and "obj". One subtraction finds the
// objects that are sampled (observe_object.h), one bit test those of which the release is logged; each domain is called
// with the GIL held.
//
// Releases have to be wrapped. A sampled object that is put into a block of malloc's instead, whose release would come
// to our free() by itself, pins the top of malloc's heap: glibc then keeps what the program has freed below it.
#pragma once

#include "shim/observe/object_allocator.h"

namespace whyrss::shim {

// What to set in place of `real`, which must stay where it is.
ObjectAllocator sampling_before(ObjectAllocator& real) noexcept;

}  // namespace whyrss::shim
