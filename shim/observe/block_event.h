// Records of single blocks, and which of them are followed to their release. The thread is entered and Busy held by the
// caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#include "shim/events/emit.h"
#include "shim/events/thread_state.h"
#include "shim/heap/heap_count.h"
#include "shim/heap/live_blocks.h"
#include "shim/trace/trace_format.h"

namespace whyrss::shim {

// Written field by field into the chunk: a copy of a record made a moment ago waits until its stores are done. False:
// there was no room.
inline bool emit_block(ThreadState& thread, trace::RecordKind kind, std::uint32_t stack_id, std::uintptr_t block,
                       std::size_t size_bytes, std::uint64_t sampled_bytes) noexcept {
  std::byte* bytes = trace::reserve(thread.writer, thread.lease, sizeof(trace::BlockRecord));
  if (bytes == nullptr) return false;
  new (bytes) trace::BlockRecord{.header = header_of(kind, sizeof(trace::BlockRecord)),
                                 .address = block,
                                 .size_bytes = size_bytes,
                                 .sampled_bytes = sampled_bytes,
                                 .stack_id = stack_id,
                                 .tid = thread.writer.tid};
  trace::publish(thread.lease, sizeof(trace::BlockRecord));
  return true;
}

// Smaller buffers that a loop asks for and gives back at once leave no records, where the collector has not read them
// yet: a loop of nothing else loses no events then, and costs 5.2x in place of 12.9x. Larger ones are worth a record,
// as a page walk may come upon them. Not in exact mode, where each event is wanted, nor without a collector: the
// pool is then all that there is.
constexpr std::size_t kRetractableBytes = 1 << 20;

// The allocation of a block, whose record emit_release() may take back. `sampled_bytes`: see trace::BlockRecord.
inline void emit_allocation(ThreadState& thread, trace::RecordKind kind, std::uint32_t stack_id, std::uintptr_t block,
                            std::size_t size_bytes, std::uint64_t sampled_bytes = 0) noexcept {
  if (!emit_block(thread, kind, stack_id, block, size_bytes, sampled_bytes)) return;
  trace::Lease& lease = thread.lease;
  const bool may_be = !heap().exact && size_bytes < kRetractableBytes &&
                      thread.writer.pool.header->reader_pid.load(std::memory_order_relaxed) != 0;
  lease.retractable_block = may_be ? block : 0;
  lease.retractable_end = lease.used;
  lease.retractable_at = lease.used - trace::padded(sizeof(trace::BlockRecord));
}

// Of a block that was logged. Where the record of its allocation is the thread's last one, both are left out.
inline void emit_release(ThreadState& thread, std::uintptr_t block) noexcept {
  trace::Lease& lease = thread.lease;
  thread.taken_back.block = 0;
  const bool is_last = lease.retractable_block == block && lease.retractable_end == lease.used;
  if (!is_last || !trace::retract(lease, lease.retractable_at)) {
    emit_block(thread, trace::RecordKind::release, trace::kNoStack, block, 0, 0);
    return;
  }
  lease.retractable_block = 0;
  trace::BlockRecord record{};
  std::memcpy(&record, lease.data + lease.used, sizeof record);
  thread.taken_back = {.block = block,
                       .size_bytes = record.size_bytes,
                       .sampled_bytes = record.sampled_bytes,
                       .stack_id = record.stack_id,
                       .kind = record.header.kind};
}

// The release that was emitted last did not happen.
inline void emit_release_undone(ThreadState& thread, std::uintptr_t block) noexcept {
  const ThreadState::TakenBack& taken = thread.taken_back;
  if (taken.block == block)
    emit_allocation(thread, taken.kind, taken.stack_id, block, taken.size_bytes, taken.sampled_bytes);
  else
    emit_block(thread, trace::RecordKind::release_undone, trace::kNoStack, block, 0, 0);
}

// False: the block is not followed, as its release could not be reported: a false leak is worse than a gap. `note` is
// kept with it (live_blocks.h).
bool follow_block(ThreadState& thread, const void* block, std::uint16_t note = 0) noexcept;

}  // namespace whyrss::shim
