// The liveness table: how many bytes of blocks that are not all logged are live on each page. Kept by the shim in the
// target's private memory, so that a fork child begins with the right counts; read by the collector from outside. Two
// levels, because virtual size counts on some clusters: a leaf is mapped when its first page is used.
//
//   LivenessTable in the target (address in ProcessSlot::liveness)
//   directory -> kDirectoryEntries addresses of leaves, 0: none
//   leaf -> kLeafPages counters of 32 bits, one per page; in the directory of block starts: words of 32 bits
//
// In sampled mode a thread has a directory of its own while it lives, unless all kThreadDirectories are taken: it
// counts there without a bus lock, and the next thread goes on with what is in it. A page's counter is the sum of those
// in all directories, modulo 2^32. Where a thread's directory has a leaf, the common one has too.
//
// A counter     bits 0 to 15   live units of 8 bytes; an int16: below 0 when blocks from before us were released
//               bits 16 to 31  allocations on this page, modulo 2^16: not 0 once the page has held a block
// or kPymallocPage in the high half and 0 in the low one (in the common directory, and 0 in the others): the page
// belongs to an arena of CPython's small-object allocator, whose pools say themselves how full they are. A block that
// lies on several pages counts on each with the units that lie there.
//
// A block start  of a block from kLargeBlockBytes on: its page's word says where it lies, so that one store counts it.
// A
//                page is the first of one such block at most.
//                bits 0 to 13   live units of 8 bytes, 0: no block
//                bits 14 to 21  where on the page it begins, by 16 bytes
//                bits 22 to 27  pages from here on that were held by blocks which began here
//
// Threads       relaxed atomic adds (plain ones in a thread's own directory, and while the program is single-threaded);
//               the reader sees counts that are off by what is in flight. The word of a block start is written by the
//               thread that allocates or releases the block.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "shim/trace/trace_format.h"

namespace whyrss::trace {

inline constexpr std::uint64_t kLivenessPageBytes = 4096;
inline constexpr std::uint64_t kLivenessUnitBytes = 8;
inline constexpr std::uint64_t kLivenessPageUnits = kLivenessPageBytes / kLivenessUnitBytes;
inline constexpr unsigned kLeafBits = 18;  // 2^18 pages: 1 GiB of addresses, 1 MiB of counters
inline constexpr std::uint64_t kLeafPages = std::uint64_t{1} << kLeafBits;
inline constexpr std::uint64_t kLeafBytes = kLeafPages * sizeof(std::uint32_t);
inline constexpr std::uint64_t kLeafSpan = kLeafPages * kLivenessPageBytes;
inline constexpr std::uint64_t kDirectoryEntries = (std::uint64_t{1} << 47) / kLeafSpan;

inline constexpr std::uint32_t kPymallocPage = 0xffff;
inline constexpr std::array<char, 8> kLivenessMagic{'w', 'h', 'y', 'l', 'i', 'v', 'e', '\n'};

inline constexpr std::size_t kThreadDirectories = 16;

namespace block_start {
inline constexpr unsigned kOffsetShift = 14, kHeldShift = 22;
inline constexpr std::uint32_t kUnits = (1U << kOffsetShift) - 1, kOffset = 0xff, kHeld = 0x3f;
inline constexpr std::uint64_t kOffsetBytes = 16;
static_assert(kAlwaysLoggedBytes / kLivenessUnitBytes <= kUnits + 1);

constexpr std::uint32_t held_pages(std::uint32_t word) { return word >> kHeldShift & kHeld; }
constexpr std::uint64_t live_bytes(std::uint32_t word) { return (word & kUnits) * kLivenessUnitBytes; }
// From the beginning of the page to the block.
constexpr std::uint64_t offset_bytes(std::uint32_t word) { return (word >> kOffsetShift & kOffset) * kOffsetBytes; }

// What the word becomes when a block of less than kAlwaysLoggedBytes comes.
constexpr std::uint32_t allocated(std::uint32_t word, std::uint64_t address, std::uint64_t usable) {
  const std::uint64_t offset = address % kLivenessPageBytes;
  const auto pages = static_cast<std::uint32_t>((offset + usable + kLivenessPageBytes - 1) / kLivenessPageBytes);
  const std::uint32_t held = held_pages(word) > pages ? held_pages(word) : pages;
  return held << kHeldShift | static_cast<std::uint32_t>(offset / kOffsetBytes) << kOffsetShift |
         static_cast<std::uint32_t>(usable / kLivenessUnitBytes);
}
// The same when it goes.
constexpr std::uint32_t released(std::uint32_t word) { return held_pages(word) << kHeldShift; }
}  // namespace block_start

struct LivenessTable {
  std::array<char, 8> magic;
  std::uint64_t directory;            // the common one: address of kDirectoryEntries x u64
  std::uint32_t pymalloc_pool_bytes;  // 4096 (CPython 3.8, 3.9), 16384 (3.10 on), 0: no CPython seen
  std::uint32_t reserved;
  std::uint64_t leaves_refused;  // that did not fit into the address space: what lies there is not counted
  std::array<std::uint64_t, kThreadDirectories> thread_directories;  // addresses, as above; 0: none yet
  std::uint64_t block_starts;  // the same of block starts, which all threads have in common
};

static_assert(sizeof(LivenessTable) == 40 + 8 * kThreadDirectories);

}  // namespace whyrss::trace
