// Records of single blocks, and which of them are followed to their release. The thread is entered and Busy held by the
// caller.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/events/emit.h"
#include "shim/events/thread_state.h"
#include "shim/heap/live_blocks.h"
#include "shim/trace/trace_format.h"

namespace whyrss::shim {

inline void emit_block(ThreadState& thread, trace::RecordKind kind, std::uint32_t stack_id, std::uintptr_t block,
                       std::size_t size_bytes, std::uint64_t sampled_bytes) noexcept {
  emit(thread, kind,
       trace::BlockRecord{.header = {},
                          .address = block,
                          .size_bytes = size_bytes,
                          .sampled_bytes = sampled_bytes,
                          .stack_id = stack_id,
                          .tid = thread.writer.tid});
}

// False: the block is not followed, as its release could not be reported: a false leak is worse than a gap.
bool follow_block(ThreadState& thread, const void* block, std::uint16_t pages = 0) noexcept;

}  // namespace whyrss::shim
