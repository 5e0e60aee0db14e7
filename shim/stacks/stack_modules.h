// The ELF images that stacks refer to, described to the reader at first use with their build id, so
// that addresses can be named later and elsewhere. No locks; async-signal-safe once started.
#pragma once

#include <cstdint>

#include "shim/trace/pool.h"

namespace whyrss::shim {

// Learns the path of the main program, for which the loader has none.
void start_modules() noexcept;

// Emits a ModuleRecord for the image that holds `address` unless the reader knows it.
void describe_module(std::uint64_t address, const trace::Writer& writer, trace::Lease& lease) noexcept;

// After dlclose and in a fork child: every image is described again.
void forget_modules() noexcept;

}  // namespace whyrss::shim
