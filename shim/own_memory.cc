#include "shim/own_memory.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "shim/raw_io.h"

namespace whyrss::shim {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;  // smaller areas between their guard pages have none

// linux/prctl.h of Linux 5.17; the name shows up as [anon:whyrss] in smaps where the kernel has it.
constexpr long kSetVma = 0x53564d41;
constexpr long kSetVmaAnonymousName = 0;

constexpr std::size_t rounded(std::size_t size_bytes) { return (size_bytes + kPageBytes - 1) & ~(kPageBytes - 1); }

}  // namespace

void* map_own(std::size_t size_bytes) noexcept {
  const std::size_t size = rounded(size_bytes);
  const long base = raw_syscall(SYS_mmap, 0, static_cast<long>(size + 2 * kPageBytes), PROT_NONE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (is_raw_error(base)) return nullptr;
  const long memory = base + static_cast<long>(kPageBytes);
  if (is_raw_error(raw_syscall(SYS_mprotect, memory, static_cast<long>(size), PROT_READ | PROT_WRITE))) {
    raw_syscall(SYS_munmap, base, static_cast<long>(size + 2 * kPageBytes));
    return nullptr;
  }
  raw_syscall(SYS_madvise, memory, static_cast<long>(size), MADV_DONTDUMP);
  // Huge pages would make a sparse table resident.
  if (size >= kHugePageBytes) raw_syscall(SYS_madvise, memory, static_cast<long>(size), MADV_NOHUGEPAGE);
  raw_syscall(SYS_prctl, kSetVma, kSetVmaAnonymousName, memory, static_cast<long>(size), as_long("whyrss"));
  return reinterpret_cast<void*>(memory);
}

void unmap_own(void* memory, std::size_t size_bytes) noexcept {
  if (memory == nullptr) return;
  raw_syscall(SYS_munmap, as_long(memory) - static_cast<long>(kPageBytes),
              static_cast<long>(rounded(size_bytes) + 2 * kPageBytes));
}

}  // namespace whyrss::shim
