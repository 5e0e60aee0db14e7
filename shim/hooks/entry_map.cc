// Address space calls. Their results come back untouched; failures are not recorded.
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>

#include "shim/events/caller.h"
#include "shim/faults/kernel_faults.h"
#include "shim/faults/touch_event.h"
#include "shim/hooks/entry_allocate.h"
#include "shim/observe/observe.h"
#include "shim/sys/raw_io.h"
#include "shim/sys/real.h"

namespace whyrss::shim {
namespace {

using trace::RecordKind;

// Protection and advice changes of less than this say little and are many (allocators, the loader).
constexpr std::size_t kSmallRangeBytes = 64 * 1024;

bool gives_or_takes_pages(int advice) noexcept {
  return advice == MADV_FREE || advice == MADV_DONTNEED || advice == MADV_REMOVE || advice == MADV_PAGEOUT ||
         advice == MADV_HUGEPAGE;
}

std::uint32_t mapping_weight(int flags) noexcept {
  const bool populates = (flags & (MAP_POPULATE | MAP_LOCKED)) != 0;
  return populates || g_kernel_faults.future_locked.load(std::memory_order_relaxed) ? populating_weight() : 0;
}

std::uint32_t advice_weight(int advice) noexcept {
  return advice == MADV_POPULATE_READ || advice == MADV_POPULATE_WRITE ? populating_weight() : 0;
}

[[gnu::always_inline]] inline void* map_observed(const Caller& caller, void* address, std::size_t size, int prot,
                                                 int flags, int fd, off_t offset) noexcept {
  resolve_real();
  if ((flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) != 0) touch_before_removal(thread_state(), address, size);
  KernelFaults faults(mapping_weight(flags));
  void* mapped = real.mmap64(address, size, prot, flags, fd, offset);
  if (mapped == MAP_FAILED) return mapped;
  faults.end();
  observe_map(caller, {.address = mapped,
                       .size_bytes = size,
                       .prot = prot,
                       .flags = flags,
                       .fd = (flags & MAP_ANONYMOUS) != 0 ? -1 : fd,
                       .file_offset = static_cast<std::uint64_t>(offset)});
  faults.log(caller, mapped, size);
  return mapped;
}

void observe_advice(const Caller& caller, const void* address, std::size_t size, int advice) noexcept {
  if (gives_or_takes_pages(advice) || size >= kSmallRangeBytes)
    observe_range(caller, RecordKind::advise, address, size, advice);
}

void observe_protection(const Caller& caller, const void* address, std::size_t size, int prot) noexcept {
  if (size >= kSmallRangeBytes) observe_range(caller, RecordKind::protect, address, size, prot);
}

void observe_break(const Caller& caller, std::uintptr_t before, std::uintptr_t after) noexcept {
  if (after != before)
    observe_range(caller, RecordKind::break_moved, reinterpret_cast<const void*>(after), before,
                  static_cast<std::int64_t>(after - before));
}

std::uintptr_t current_break() noexcept { return static_cast<std::uintptr_t>(raw_syscall(SYS_brk, 0)); }

// shmdt does not say how much it unmaps: the attachments of this process, as far as they fit.
struct Attachment {
  std::atomic<std::uintptr_t> address;
  std::size_t size_bytes;
};
constinit std::array<Attachment, 256> g_attachments{};

void remember_attachment(const void* address, std::size_t size_bytes) noexcept {
  for (Attachment& attachment : g_attachments) {
    std::uintptr_t empty = 0;
    if (!attachment.address.compare_exchange_strong(empty, 1)) continue;
    attachment.size_bytes = size_bytes;
    attachment.address.store(reinterpret_cast<std::uintptr_t>(address), std::memory_order_release);
    return;
  }
}

std::size_t forget_attachment(const void* address) noexcept {
  for (Attachment& attachment : g_attachments) {
    if (attachment.address.load(std::memory_order_acquire) != reinterpret_cast<std::uintptr_t>(address)) continue;
    const std::size_t size_bytes = attachment.size_bytes;
    attachment.address.store(0, std::memory_order_release);
    return size_bytes;
  }
  return 0;
}

std::size_t segment_bytes(int id) noexcept {
  shmid_ds segment{};
  return is_raw_error(own_syscall(SYS_shmctl, id, IPC_STAT, as_long(&segment))) ? 0 : segment.shm_segsz;
}

}  // namespace

// syscall(SYS_mmap, ...) and its family: sent here by entry_syscall.S, which leaves all other calls alone.
extern "C" __attribute__((visibility("hidden"))) long whyrss_memory_syscall(long number, long a1, long a2, long a3,
                                                                            long a4, long a5, long a6) noexcept {
  const Caller caller = caller_here();
  auto* address = reinterpret_cast<void*>(a1);
  const auto size = static_cast<std::size_t>(a2);
  const std::uintptr_t break_before = number == SYS_brk ? current_break() : 0;
  if (number == SYS_munmap) observe_range(caller, RecordKind::unmap, address, size, 0);
  const std::uint32_t weight = number == SYS_mmap      ? mapping_weight(static_cast<int>(a4))
                               : number == SYS_madvise ? advice_weight(static_cast<int>(a3))
                                                       : 0;
  const bool removes = number == SYS_munmap || number == SYS_mremap ||
                       (number == SYS_mmap && (a4 & (MAP_FIXED | MAP_FIXED_NOREPLACE)) != 0) ||
                       (number == SYS_mprotect && (a3 & PROT_WRITE) == 0);
  if (removes) touch_before_removal(thread_state(), address, size);
  KernelFaults faults(weight);
  const long result = raw_syscall(number, a1, a2, a3, a4, a5, a6);
  if (is_raw_error(result)) return libc_result(result);
  faults.end();
  const auto* mapped = reinterpret_cast<const void*>(result);
  switch (number) {
    case SYS_mmap:
      observe_map(caller, {.address = mapped,
                           .size_bytes = size,
                           .prot = static_cast<int>(a3),
                           .flags = static_cast<int>(a4),
                           .fd = (a4 & MAP_ANONYMOUS) != 0 ? -1 : static_cast<int>(a5),
                           .file_offset = static_cast<std::uint64_t>(a6)});
      break;
    case SYS_mremap:
      observe_remap(caller, {.address = address, .size_bytes = size, .prot = 0, .flags = 0, .fd = -1, .file_offset = 0},
                    {.address = mapped,
                     .size_bytes = static_cast<std::size_t>(a3),
                     .prot = 0,
                     .flags = static_cast<int>(a4),
                     .fd = -1,
                     .file_offset = 0});
      break;
    case SYS_madvise:
      observe_advice(caller, address, size, static_cast<int>(a3));
      break;
    case SYS_mprotect:
      observe_protection(caller, address, size, static_cast<int>(a3));
      break;
    case SYS_brk:
      observe_break(caller, break_before, static_cast<std::uintptr_t>(result));
      break;
    default:
      break;
  }
  faults.log(caller, number == SYS_mmap ? mapped : address, size);
  return result;
}

// Any other syscall() before the table is filled.
extern "C" __attribute__((visibility("hidden"))) long whyrss_plain_syscall(long number, long a1, long a2, long a3,
                                                                           long a4, long a5, long a6) noexcept {
  return libc_result(raw_syscall(number, a1, a2, a3, a4, a5, a6));
}

}  // namespace whyrss::shim

using namespace whyrss::shim;  // NOLINT(google-build-using-namespace): entries are global C functions

WHYRSS_ENTRY void* mmap(void* address, std::size_t size, int prot, int flags, int fd, off_t offset) noexcept {
  return map_observed(caller_here(), address, size, prot, flags, fd, offset);
}

WHYRSS_ENTRY void* mmap64(void* address, std::size_t size, int prot, int flags, int fd, off64_t offset) noexcept {
  return map_observed(caller_here(), address, size, prot, flags, fd, offset);
}

WHYRSS_ENTRY int munmap(void* address, std::size_t size) noexcept {
  resolve_real();
  touch_before_removal(thread_state(), address, size);
  observe_range(caller_here(), RecordKind::unmap, address, size, 0);
  return real.munmap(address, size);
}

WHYRSS_ENTRY void* mremap(void* address, std::size_t old_size, std::size_t new_size, int flags, ...) noexcept {
  resolve_real();
  void* wanted = nullptr;
  if ((flags & (MREMAP_FIXED | 4 /* MREMAP_DONTUNMAP, also takes an address */)) != 0) {
    va_list arguments;
    va_start(arguments, flags);
    wanted = va_arg(arguments, void*);
    va_end(arguments);
  }
  touch_before_removal(thread_state(), address, old_size);
  void* moved = real.mremap(address, old_size, new_size, flags, wanted);
  if (moved != MAP_FAILED)
    observe_remap(caller_here(),
                  {.address = address, .size_bytes = old_size, .prot = 0, .flags = 0, .fd = -1, .file_offset = 0},
                  {.address = moved, .size_bytes = new_size, .prot = 0, .flags = flags, .fd = -1, .file_offset = 0});
  return moved;
}

WHYRSS_ENTRY int mprotect(void* address, std::size_t size, int prot) noexcept {
  resolve_real();
  if ((prot & PROT_WRITE) == 0) touch_before_removal(thread_state(), address, size);
  const int result = real.mprotect(address, size, prot);
  if (result == 0) observe_protection(caller_here(), address, size, prot);
  return result;
}

WHYRSS_ENTRY int madvise(void* address, std::size_t size, int advice) noexcept {
  resolve_real();
  KernelFaults faults(advice_weight(advice));
  const int result = real.madvise(address, size, advice);
  faults.end();  // also where it failed: the pages before the hole are there
  if (result == 0) observe_advice(caller_here(), address, size, advice);
  faults.log(caller_here(), address, size);
  return result;
}

WHYRSS_ENTRY int posix_madvise(void* address, std::size_t size, int advice) noexcept {
  resolve_real();
  const int error = real.posix_madvise(address, size, advice);
  // POSIX_MADV_DONTNEED does nothing in glibc; the other values equal madvise's.
  if (error == 0 && advice != POSIX_MADV_DONTNEED) observe_advice(caller_here(), address, size, advice);
  return error;
}

WHYRSS_ENTRY int brk(void* address) noexcept {
  resolve_real();
  const std::uintptr_t before = current_break();
  const int result = real.brk(address);
  if (result == 0) observe_break(caller_here(), before, reinterpret_cast<std::uintptr_t>(address));
  return result;
}

WHYRSS_ENTRY void* sbrk(std::intptr_t increment) noexcept {
  resolve_real();
  void* before = real.sbrk(increment);
  if (before != reinterpret_cast<void*>(-1) && increment != 0) {
    const auto old_break = reinterpret_cast<std::uintptr_t>(before);
    observe_break(caller_here(), old_break, old_break + static_cast<std::uintptr_t>(increment));
  }
  return before;
}

WHYRSS_ENTRY void* shmat(int id, const void* address, int flags) noexcept {
  resolve_real();
  void* attached = real.shmat(id, address, flags);
  if (attached == reinterpret_cast<void*>(-1)) return attached;
  const std::size_t size = segment_bytes(id);
  remember_attachment(attached, size);
  observe_map(caller_here(), {.address = attached,
                              .size_bytes = size,
                              .prot = (flags & SHM_RDONLY) != 0 ? PROT_READ : PROT_READ | PROT_WRITE,
                              .flags = MAP_SHARED,
                              .fd = -1,
                              .file_offset = 0,
                              .segment = id});
  return attached;
}

WHYRSS_ENTRY int memfd_create(const char* name, unsigned flags) noexcept {
  resolve_real();
  const int fd = real.memfd_create(name, flags);
  if (fd >= 0) observe_memory_file(caller_here(), fd);
  return fd;
}

WHYRSS_ENTRY int shmdt(const void* address) noexcept {
  resolve_real();
  if (const std::size_t size = forget_attachment(address); size != 0)
    observe_range(caller_here(), RecordKind::unmap, address, size, 0);
  return real.shmdt(address);
}

constexpr std::size_t kAllBytes = std::size_t{1} << 47;

WHYRSS_ENTRY int mlock(const void* address, std::size_t size) noexcept {
  resolve_real();
  KernelFaults faults(populating_weight());
  const int result = real.mlock(address, size);
  faults.end();
  observe_locked(size);
  faults.log(caller_here(), address, size);
  return result;
}

WHYRSS_ENTRY int mlock2(const void* address, std::size_t size, unsigned flags) noexcept {
  resolve_real();
  KernelFaults faults(populating_weight());
  const int result = real.mlock2(address, size, flags);
  faults.end();
  observe_locked(size);
  faults.log(caller_here(), address, size);
  return result;
}

WHYRSS_ENTRY int mlockall(int flags) noexcept {
  resolve_real();
  KernelFaults faults(populating_weight());
  const int result = real.mlockall(flags);
  faults.end();
  observe_locked(kAllBytes);
  if (result == 0 && (flags & MCL_FUTURE) != 0) g_kernel_faults.future_locked.store(true, std::memory_order_relaxed);
  faults.log(caller_here(), nullptr, kAllBytes);
  return result;
}
