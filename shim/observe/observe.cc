#include "shim/observe/observe.h"

#include <linux/magic.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>

#include "shim/events/emit.h"
#include "shim/events/event_order.h"
#include "shim/events/process_slot.h"
#include "shim/events/session_state.h"
#include "shim/events/unmoved_bytes.h"
#include "shim/heap/heap_count.h"
#include "shim/heap/observation.h"
#include "shim/observe/allocator_stats.h"
#include "shim/observe/library_hooks.h"
#include "shim/observe/python_memory.h"
#include "shim/sys/raw_io.h"

namespace whyrss::shim {
namespace {

// What is written to a new file is not followed: it may be worth a last walk.
constexpr std::size_t kFileBytes = 2 << 20;

std::uint64_t number_of(const void* address) noexcept { return reinterpret_cast<std::uintptr_t>(address); }

trace::MappedFile place_of(int fd) noexcept {
  struct statfs system {};
  if (is_raw_error(own_syscall(SYS_fstatfs, fd, as_long(&system)))) return trace::MappedFile::none;
  const bool in_memory = system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC;
  return in_memory ? trace::MappedFile::memory : trace::MappedFile::disk;
}

trace::MappedFile file_of(const Mapping& mapping) noexcept {
  if ((mapping.flags & MAP_ANONYMOUS) != 0) return trace::MappedFile::none;
  if (mapping.fd < 0) return trace::MappedFile::memory;
  return (mapping.flags & MAP_SHARED) == 0 ? trace::MappedFile::none : place_of(mapping.fd);
}

// `device`: as the kernel packs its numbers; libc unpacks them by functions.
void emit_shared_file(ThreadState& thread, std::uint64_t inode, dev_t device, std::uint32_t stack_id) noexcept {
  emit(thread, trace::RecordKind::shared_file,
       trace::SharedFileRecord{.header = {},
                               .inode = inode,
                               .device_major = static_cast<std::uint32_t>((device >> 8) & 0xfff),
                               .device_minor = static_cast<std::uint32_t>((device & 0xff) | ((device >> 12) & 0xfff00)),
                               .stack_id = stack_id,
                               .tid = thread.writer.tid});
}

void emit_memory_file(ThreadState& thread, int fd, std::uint32_t stack_id) noexcept {
  struct stat facts {};
  if (!is_raw_error(own_syscall(SYS_fstat, fd, as_long(&facts))))
    emit_shared_file(thread, facts.st_ino, facts.st_dev, stack_id);
}

}  // namespace

void observe_map(const Caller& caller, const Mapping& mapping) noexcept {
  Observation event;
  if (!event) return;
  const std::uint32_t stack_id = event.stack(caller);
  const bool is_arena = is_first_python_arena(event.thread(), caller, mapping);
  const trace::MappedFile file = file_of(mapping);
  emit(event.thread(), trace::RecordKind::map,
       trace::MapRecord{.header = {},
                        .address = number_of(mapping.address),
                        .size_bytes = mapping.size_bytes,
                        .file_offset = mapping.file_offset,
                        .prot = static_cast<std::uint32_t>(mapping.prot),
                        .flags = static_cast<std::uint32_t>(mapping.flags),
                        .fd = mapping.fd,
                        .origin = is_arena ? trace::MapOrigin::pymalloc : event.thread().map_origin,
                        .file = file,
                        .stack_id = stack_id,
                        .tid = event.thread().writer.tid});
  change_order();
  if ((mapping.flags & (MAP_ANONYMOUS | MAP_SHARED)) == MAP_ANONYMOUS) {
    note_mapper(event.thread(), caller);
    serve_library_hooks(event.thread());
  }
  if (mapping.segment >= 0) emit_shared_file(event.thread(), static_cast<std::uint64_t>(mapping.segment), 0, stack_id);
  if (mapping.fd >= 0 && file == trace::MappedFile::memory) emit_memory_file(event.thread(), mapping.fd, stack_id);
}

void observe_memory_file(const Caller& caller, int fd) noexcept {
  Observation event;
  if (event) emit_memory_file(event.thread(), fd, event.stack(caller));
}

void observe_empty_file(const Caller& caller, int fd) noexcept {
  Observation event;
  struct stat facts {};
  if (!event || is_raw_error(own_syscall(SYS_fstat, fd, as_long(&facts)))) return;
  if (!S_ISREG(facts.st_mode) || facts.st_size != 0 || place_of(fd) != trace::MappedFile::memory) return;
  emit_shared_file(event.thread(), facts.st_ino, facts.st_dev, event.stack(caller));
  note_unmoved(event.thread(), kFileBytes);
}

void observe_locked(std::size_t size_bytes) noexcept {
  Observation event;
  if (event) note_unmoved(event.thread(), size_bytes);
}

void observe_range(const Caller& caller, trace::RecordKind kind, const void* address, std::size_t size_bytes,
                   std::int64_t argument) noexcept {
  Observation event;
  if (!event) return;
  const std::uint32_t stack_id = event.stack(caller);
  if (kind == trace::RecordKind::advise && argument == MADV_FREE) {
    note_unmoved(event.thread(), size_bytes);
    note_lazily_freed(size_bytes);
  }
  emit(event.thread(), kind,
       trace::RangeRecord{.header = {},
                          .address = number_of(address),
                          .size_bytes = size_bytes,
                          .argument = argument,
                          .stack_id = stack_id,
                          .tid = event.thread().writer.tid});
  change_order();
}

void observe_remap(const Caller& caller, const Mapping& before, const Mapping& after) noexcept {
  Observation event;
  if (!event) return;
  const std::uint32_t stack_id = event.stack(caller);
  emit(event.thread(), trace::RecordKind::remap,
       trace::RemapRecord{.header = {},
                          .old_address = number_of(before.address),
                          .old_size_bytes = before.size_bytes,
                          .new_address = number_of(after.address),
                          .new_size_bytes = after.size_bytes,
                          .flags = static_cast<std::uint32_t>(after.flags),
                          .stack_id = stack_id,
                          .tid = event.thread().writer.tid,
                          .reserved = 0});
  change_order();
}

void observe_size() noexcept {
  Observation event;
  if (!event || is_vfork_child() || trace::is_kernel_closed()) return;
  ThreadState& thread = event.thread();
  const trace::ProcessSlot* slot = slot_of(thread);
  const ResidentPages pages = read_resident_pages();
  if (slot == nullptr || pages.all == 0) return;
  flush_counts(thread);
  emit(thread, trace::RecordKind::size,
       trace::SizeRecord{.header = {},
                         .rss_pages = pages.all,
                         .shared_pages = pages.shared,
                         .minor_faults = minor_faults(),
                         .live_bytes = slot->live_bytes.load(std::memory_order_relaxed)});
}

void observe_mark(trace::MarkKind kind, std::string_view text) noexcept {
  Observation event;
  if (!event) return;
  emit_text(event.thread(), trace::RecordKind::mark, static_cast<std::uint32_t>(kind), text);
  trace::ring_doorbell(event.thread().writer.pool);
}

void observe_allocator_stats(trace::StatsMoment moment) noexcept {
  if (Observation event; event && !is_vfork_child()) report_allocator_stats(event.thread(), moment);
}

void observe_note(std::string_view text) noexcept {
  if (Observation event; event) emit_text(event.thread(), trace::RecordKind::note, 0, text);
}

}  // namespace whyrss::shim
