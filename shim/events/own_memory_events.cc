#include "shim/events/own_memory_events.h"

#include <sys/mman.h>

#include <cstdint>

#include "shim/events/emit.h"
#include "shim/sys/own_memory.h"

namespace whyrss::shim {

void report_own_memory(ThreadState& thread, const void* memory, std::size_t size_bytes) noexcept {
  emit(thread, trace::RecordKind::map,
       trace::MapRecord{.header = {},
                        .address = reinterpret_cast<std::uintptr_t>(memory),
                        .size_bytes = size_bytes,
                        .file_offset = 0,
                        .prot = PROT_READ | PROT_WRITE,
                        .flags = MAP_PRIVATE | MAP_ANONYMOUS,
                        .fd = -1,
                        .origin = trace::MapOrigin::whyrss,
                        .file = trace::MappedFile::none,
                        .stack_id = trace::kNoStack,
                        .tid = thread.writer.tid});
}

void give_back_own_memory(ThreadState& thread, void* memory, std::size_t size_bytes) noexcept {
  if (trace::is_kernel_closed()) return unmap_own_of_thread(memory, size_bytes);
  emit(thread, trace::RecordKind::unmap,
       trace::RangeRecord{.header = {},
                          .address = reinterpret_cast<std::uintptr_t>(memory),
                          .size_bytes = size_bytes,
                          .argument = 0,
                          .stack_id = trace::kNoStack,
                          .tid = thread.writer.tid});
  unmap_own_of_thread(memory, size_bytes);
}

}  // namespace whyrss::shim
