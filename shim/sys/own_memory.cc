#include "shim/sys/own_memory.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <array>
#include <atomic>

#include "shim/sys/raw_io.h"

namespace whyrss::shim {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;  // smaller areas between their guard pages have none

// linux/prctl.h of Linux 5.17; the name shows up as [anon:whyrss] in smaps where the kernel has it.
constexpr long kSetVma = 0x53564d41;
constexpr long kSetVmaAnonymousName = 0;

constexpr std::size_t rounded(std::size_t size_bytes) { return (size_bytes + kPageBytes - 1) & ~(kPageBytes - 1); }

// What is handed out while the kernel is closed: written once before, then only `used` moves.
struct Reserve {
  std::byte* memory;
  std::atomic<std::size_t> used;
};
constinit Reserve g_reserve{};

// For the next who wants as much, zero-filled: its address, with its pages in the low bits; 0: none.
constinit std::array<std::atomic<std::uintptr_t>, 64> g_kept{};

// As memory that was never touched; that one stays so.
void clear_pages(void* memory, std::size_t size_bytes) noexcept {
  auto* words = static_cast<std::uint64_t*>(memory);
  for (std::size_t i = 0; i < size_bytes / sizeof *words; ++i)
    if (words[i] != 0) words[i] = 0;
}

// Takes pages that read as zero. False: there is no place.
bool keep(void* memory, std::size_t size_bytes) noexcept {
  if (size_bytes / kPageBytes >= kPageBytes) return false;
  const std::uintptr_t kept = reinterpret_cast<std::uintptr_t>(memory) | size_bytes / kPageBytes;
  for (auto& place : g_kept)
    if (std::uintptr_t none = 0; place.compare_exchange_strong(none, kept, std::memory_order_release)) return true;
  return false;
}

void* take_kept(std::size_t size_bytes) noexcept {
  for (auto& place : g_kept) {
    std::uintptr_t kept = place.load(std::memory_order_relaxed);
    if (kept % kPageBytes == size_bytes / kPageBytes && kept != 0 &&
        place.compare_exchange_strong(kept, 0, std::memory_order_acquire))
      return reinterpret_cast<void*>(kept & ~(kPageBytes - 1));
  }
  return nullptr;
}

void* take_reserve(std::size_t size_bytes) noexcept {
  if (void* memory = take_kept(size_bytes); memory != nullptr) return memory;
  if (g_reserve.memory == nullptr || size_bytes > kReserveBytes) return nullptr;
  const std::size_t at = g_reserve.used.fetch_add(size_bytes, std::memory_order_relaxed);
  if (at <= kReserveBytes - size_bytes) return g_reserve.memory + at;
  g_reserve.used.fetch_sub(size_bytes, std::memory_order_relaxed);
  return nullptr;
}

void* map_between_guards(std::size_t size) noexcept {
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

}  // namespace

void* map_own(std::size_t size_bytes) noexcept {
  const trace::KernelVisit visit;
  return visit ? map_between_guards(rounded(size_bytes)) : take_reserve(rounded(size_bytes));
}

void unmap_own(void* memory, std::size_t size_bytes) noexcept {
  if (memory == nullptr) return;
  const std::size_t size = rounded(size_bytes);
  const auto into_reserve =
      reinterpret_cast<std::uintptr_t>(memory) - reinterpret_cast<std::uintptr_t>(g_reserve.memory);
  const trace::KernelVisit visit;
  if (!visit || (g_reserve.memory != nullptr && into_reserve < kReserveBytes)) {
    clear_pages(memory, size);
    keep(memory, size);
    return;
  }
  raw_syscall(SYS_munmap, as_long(memory) - static_cast<long>(kPageBytes), static_cast<long>(size + 2 * kPageBytes));
}

void* map_own_of_thread(std::size_t size_bytes) noexcept {
  constexpr std::uint32_t kSingle = 4;  // most programs have few threads
  constexpr std::size_t kAtOnce = 16;
  static constinit std::atomic<std::uint32_t> wanted{0};
  const std::size_t size = rounded(size_bytes);
  if (void* memory = take_kept(size); memory != nullptr) return memory;
  if (wanted.fetch_add(1, std::memory_order_relaxed) < kSingle) return map_own(size);
  const trace::KernelVisit visit;
  auto* all = visit ? static_cast<std::byte*>(map_between_guards(size * kAtOnce)) : nullptr;
  if (all == nullptr) return map_own(size);
  for (std::size_t i = 1; i < kAtOnce; ++i)
    if (std::byte* next = all + i * size; !keep(next, size))
      raw_syscall(SYS_munmap, as_long(next), static_cast<long>(size));
  return all;
}

void unmap_own_of_thread(void* memory, std::size_t size_bytes) noexcept {
  if (memory == nullptr) return;
  const std::size_t size = rounded(size_bytes);
  const trace::KernelVisit visit;
  // Not where the program has locked its memory.
  if (!visit || is_raw_error(raw_syscall(SYS_madvise, as_long(memory), static_cast<long>(size), MADV_DONTNEED)))
    clear_pages(memory, size);
  if (!keep(memory, size) && visit) raw_syscall(SYS_munmap, as_long(memory), static_cast<long>(size));
}

void empty_own(void* memory, std::size_t size_bytes) noexcept {
  const trace::KernelVisit visit;
  if (!visit)
    clear_pages(memory, size_bytes);
  else
    raw_syscall(SYS_madvise, as_long(memory), static_cast<long>(size_bytes), MADV_DONTNEED);
}

void* map_reserve() noexcept {
  if (g_reserve.memory != nullptr) return nullptr;
  g_reserve.memory = static_cast<std::byte*>(map_own(kReserveBytes));
  return g_reserve.memory;
}

}  // namespace whyrss::shim
