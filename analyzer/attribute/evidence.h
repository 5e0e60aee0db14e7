// All that attribution may use for one process at one moment: what the kernel said about its pages,
// and what the events said about who owns which addresses. Plain data, so that a test can write it down.
//
// Every list is sorted by start and its ranges are disjoint and half-open. Addresses are uint64 (the
// kernel's highest page has no room for an end in int64); sizes in bytes are int64.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "attribute/live_set.h"
#include "model/name_pool.h"
#include "model/stack_table.h"

namespace whyrss {

struct Range {
  std::uint64_t start = 0, end = 0;
  friend bool operator==(const Range&, const Range&) = default;
};

enum class Backing : std::uint8_t { anonymous, file, shmem, hugetlb, device, special };

struct Vma {
  std::uint64_t start = 0, end = 0;
  std::string path;  // or [name], "" if nameless
  Backing backing = Backing::anonymous;
  bool shared = false, writable = false, executable = false;
  std::uint64_t file_offset = 0;
  bool readable = true;
};

// Pages counted in RSS; a run lies within one VMA.
struct ResidentRun {
  std::uint64_t start = 0, end = 0;
  bool file = false;       // of the page cache or shmem
  bool exclusive = false;  // mapped once
  bool huge = false;       // mapped 2 MiB at a time
  friend bool operator==(const ResidentRun&, const ResidentRun&) = default;
};

enum class Owner : std::uint8_t {
  program,    // mmap, mremap, brk or sbrk by the program
  allocator,  // the same by the library that serves malloc
  library,    // the same by an allocator inside a library, of which blocks are known
  pymalloc,   // CPython's arena allocator
  block,      // a live block of the malloc family
  whyrss,
};

struct OwnedRange {
  std::uint64_t start = 0, end = 0;
  Owner owner = Owner::program;
  StackId stack = kEmptyStack;
  friend bool operator==(const OwnedRange&, const OwnedRange&) = default;
};

// Pages that hold, or held, a block which was logged by its address.
struct HeldRange {
  std::uint64_t start = 0, end = 0;
  StackId last_stack = kEmptyStack;  // the call that allocated here last
  friend bool operator==(const HeldRange&, const HeldRange&) = default;
};

struct StackRange {
  std::uint64_t start = 0, end = 0;
  StackId stack = kEmptyStack;  // the pthread_create call
};

// What became of an inherited page.
enum class ForkClass : std::uint8_t {
  none,
  shared,  // still as at fork
  sole,    // as at fork, but no other process maps it any more
  copied,  // this process wrote to it
};

struct ForkRange {
  std::uint64_t start = 0, end = 0;
  ForkClass fork_class = ForkClass::shared;
  friend bool operator==(const ForkRange&, const ForkRange&) = default;
};

// What the liveness table and CPython's pool headers say about one page.
struct PageLife {
  std::uint16_t live_bytes = 0;  // of small blocks, at most kLivePageBytes
  bool pymalloc = false;         // part of a pool of CPython's small-object allocator
  bool ever_held = false;        // a small block was, or is, on it
  friend bool operator==(const PageLife&, const PageLife&) = default;
};

inline constexpr std::uint64_t kLivePageBytes = 4096;

// Consecutive pages from `start` on.
struct LivePages {
  std::uint64_t start = 0;
  std::vector<PageLife> pages;

  [[nodiscard]] std::uint64_t end() const { return start + pages.size() * kLivePageBytes; }
};

// What one sampled page fault, or one call that faulted in the kernel, brought in: what of the range is resident. Those
// of sampled faults may overlap, and are at most 2 MiB; those of the kernel are disjoint.
struct TouchedRange {
  std::uint64_t start = 0, end = 0;  // whole pages
  double weight = 1;                 // so many ranges like it were brought in; by_kernel: so much of it, at most 1
  StackId stack = kEmptyStack;
  bool by_kernel = false;
  std::uint32_t calls = 1;  // by_kernel: the call stands for so many like it, which were not counted
  friend bool operator==(const TouchedRange&, const TouchedRange&) = default;
};

// Resident pages that were given up with MADV_FREE and not taken yet.
struct LazyRange {
  std::uint64_t start = 0, end = 0;
  StackId advised_by = kEmptyStack;  // the call that gave them up
  friend bool operator==(const LazyRange&, const LazyRange&) = default;
};

struct Evidence {
  double time_s = 0;
  bool skewed = false;
  bool traced = false;      // events of this image were seen
  std::string pool_path{};  // the file of our own shared memory
  std::vector<Vma> vmas{};
  std::vector<ResidentRun> runs{};
  std::vector<OwnedRange> owned{};
  std::vector<HeldRange> held_blocks{};
  std::vector<StackRange> thread_stacks{};
  std::vector<ForkRange> inherited{};        // fork children only
  std::vector<OwnedRange> ancestor_owned{};  // who owned the addresses when this process was forked
  bool has_liveness = false;                 // `live_pages` tells of all pages that hold, or ever held, a small block
  bool counts_underflowed = false;           // on some pages more was released than allocated: they may hold more
  std::vector<LivePages> live_pages{};       // sorted, disjoint
  std::vector<TouchedRange> touched{};       // sorted by start
  const LiveSet* small_blocks = nullptr;     // nullptr: none are followed
  std::uint32_t block_header_bytes = 0;      // that malloc keeps beside each of them
  bool has_huge = false;                     // pages mapped 2 MiB at a time were inspected, every huge_stride-th
  std::uint32_t huge_stride = 1;
  std::vector<Range> huge_zeros{};     // 4 KiB pages of zeros on those of them that hold other bytes too
  std::vector<LazyRange> lazy_free{};  // as far as the kernel vouches for it (lazy_pages.h)
  bool exact_blocks = false;           // `small_blocks` holds all that were allocated since the shim is there
  std::shared_ptr<NamePool> names{};   // the account's slices are packed with; nullptr: they are not packed
};

// glibc's thread arenas start at multiples of HEAP_MAX_SIZE (malloc/arena.c, 64-bit); glibc maps them by
// its internal mmap, which no hook sees. Fragments never cross such a boundary.
inline constexpr std::uint64_t kGlibcArenaBytes = 64ULL * 1024 * 1024;

// Private memory without a file; a private mapping of /dev/zero is that too (mmap_zero in the kernel's
// drivers/char/mem.c).
inline bool is_private_anonymous(const Vma& vma) {
  return !vma.shared &&
         (vma.backing == Backing::anonymous || (vma.backing == Backing::device && vma.path == "/dev/zero"));
}

}  // namespace whyrss
