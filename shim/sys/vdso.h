// The clock of the vDSO, found without libc: a host may have a clock_gettime of its own.
#pragma once

namespace whyrss::shim {

// Once per image, before the first record: the clock needs no system call from here on, unless this process was born
// with the time stamp counter forbidden (trace/clock.h).
void start_clock() noexcept;

// Whether the vDSO's clock can be read without a system call, which it makes itself where the kernel's clock source has
// no counter that programs may read. Opens a file.
bool is_clock_in_vdso() noexcept;

}  // namespace whyrss::shim
