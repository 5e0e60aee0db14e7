// What a recording looks like on disk. Written by the collector only, read by every report.
//
//   DIR/manifest.json                          what was asked, by whom, when; state; what could not be written; with a
//                                              checksum. When the collector closes it: each process and how many
//                                              frames its files have
//   DIR/manifest.spare                         room for the next one, also on a full disk; removed at the end
//   DIR/lock                                   held (flock) by the one collector of this recording
//   DIR/collector.log                          one line per thing that went wrong
//   DIR/symbols.zst                            FileHeader, then frames of kind `names`: written at the end and
//                                              by reports, may be missing
//   DIR/<host>.<pid>.<start_ticks>/events.zst  FileHeader, then frames of kind `segment`
//   DIR/<host>.<pid>.<start_ticks>/pages.zst   FileHeader, then frames of the other kinds
//
// A frame is appended with one write() and carries its own checksum, so a file cut at any byte is
// readable up to its last whole frame, and a damaged frame costs itself only. Payloads are zstd
// frames. Changing it: the rule of trace_format.h, same kFormatVersion.
//
// What is missing is known: frames are numbered from 0 in each file, and a closed recording says how many each file
// has. What could not be written stands in the manifest: the number of such a frame goes to the next one. The checksum
// covers the number, and is seeded with that of the file's header: a frame of another file is damage.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "trace_format.h"

namespace whyrss::trace {

enum class FileKind : std::uint32_t { events = 1, pages = 2, names = 3 };

struct FileHeader {
  std::array<char, 8> magic;  // kMagic: a text-mode copy destroys it visibly
  std::uint32_t version;
  FileKind kind;
  std::uint64_t session_high, session_low;
  std::uint32_t pid, reserved;
  std::uint64_t start_ticks;
  std::uint64_t frame_count;  // of a file that is written at once (names); 0: the manifest says it
  std::uint64_t checksum;     // XXH3-64 of the 56 bytes before
};

inline constexpr std::uint32_t kFrameMagic = 0x314d5257;  // "WRM1"
inline constexpr std::uint32_t kMaxFrameBytes = 64U * 1024 * 1024;

enum class FrameKind : std::uint16_t {
  segment = 1,      // SegmentHeader + records; several per payload
  walk = 2,         // WalkHeader + VMAs with page runs
  smaps = 3,        // TextHeader + /proc/PID/smaps as read
  rollup = 4,       // TextHeader + /proc/PID/smaps_rollup as read
  polls = 5,        // Poll x n
  process = 6,      // JSON object: pid, parent, start_ticks, comm, exe, command, environment (of a job), uid, ...
  ended = 7,        // JSON object: ended_ns, how, and status, signal or high_water_kilos (VmHWM) where known
  status = 8,       // TextHeader + /proc/PID/status as read
  note = 9,         // JSON object: text
  counters = 10,    // JSON object: the process's slot counters at that time
  cgroup = 11,      // JSON object: version, path, limit_bytes, and a CgroupReading (analyzer/model/account.h)
  liveness = 13,    // LivenessHeader + LivenessRange x range_count, each with its pages: of the walk before it
  blocks = 14,      // compact records of exact mode, re-encoded in columns (recording/block_payload.h)
  views = 15,       // ViewsHeader + RetainingView x n: of the walk before it, where numpy or torch is loaded
  huge = 17,        // HugePagesHeader + HugePage x n: of the walk before it, where there are any
  lazy_free = 18,   // LazyFreeHeader + LazyFreeMapping x n: of the walk before it, where there is any
  tracked = 16,     // TrackedHeader + PageRun x run_count: pages whose writes are known from now on
  file_sizes = 24,  // JSON object: files, each with path, size_bytes, mapped_bytes and writable (where writes go to
                    // it), as of the walk before it
  live_polls = 26,  // LivePoll x n
  unmapped = 27,    // JSON object: shared memory that no process maps and that is counted at this one, from now on:
                    // bytes (null: its open files may not be read), count, files: the largest, each with name, bytes,
                    // inode, and major and minor of its device (of a System V segment: its id, on no device)
  names = 12,       // JSON object: functions and lines of one ELF file (analyzer/decode/name_file.h)
};

struct FrameHeader {
  std::uint32_t magic;
  FrameKind kind;
  std::uint16_t reserved;
  std::uint32_t stored_bytes;  // of the compressed payload that follows
  std::uint32_t raw_bytes;     // of the payload
  std::uint64_t time_ns;       // CLOCK_MONOTONIC when written
  std::uint64_t number;        // in its file, from 0
  std::uint64_t checksum;  // XXH3-64 of the 32 bytes before (seeded: FileHeader), then of the stored payload (seeded)
};

// A stretch of one thread's records as they stood in a chunk. The same (lease, offset) may come twice
// after a kill of the collector: the reader keeps the first.
struct SegmentHeader {
  std::uint64_t lease;
  std::uint32_t offset, bytes;
  std::uint32_t tid;
  std::uint32_t lost_before;  // records that this thread had to drop before this lease
};

enum class WalkTrigger : std::uint32_t {
  start = 0,
  growth = 1,
  fork = 2,
  exit = 3,
  advise = 4,
  quiet = 5,
  interval = 6,
  request = 7,
  peak = 8,
  end = 9,
  phase = 10,  // one began or ended
  limit = 11   // a memory limit is near
};

struct WalkFlags {
  static constexpr std::uint32_t skewed = 1;              // outside both statm readings
  static constexpr std::uint32_t zero_pages_unknown = 2;  // no PAGEMAP_SCAN: zero pages may be counted
  static constexpr std::uint32_t smaps_only = 4;          // no pagemap: runs are synthesised from smaps
  static constexpr std::uint32_t partial = 8;             // the process ended during the walk
};

struct WalkHeader {
  std::uint64_t begin_ns, end_ns;
  std::uint64_t statm_before_pages, statm_after_pages;
  std::uint64_t minor_faults, major_faults;  // of the process at end_ns
  WalkTrigger trigger;
  std::uint32_t flags;
  std::uint32_t vma_count;
  std::uint32_t page_bytes;
};

// What a mapping is backed by, as the collector found out.
enum class Backing : std::uint32_t {
  anonymous = 0,  // no file: nameless, [heap], [stack], [anon:...]
  file = 1,       // a file of a disk or network file system
  shmem = 2,      // tmpfs, memfd, SysV, MAP_SHARED anonymous
  hugetlb = 3,    // not in RSS
  device = 4,
  special = 5,  // [vdso], [vvar], [vsyscall]
};

struct VmaPerms {
  static constexpr std::uint32_t read = 1, write = 2, exec = 4, shared = 8;
};

// Then: path (padded to 8), then run_count WalkRun that cover [start, end) without gaps.
struct WalkVma {
  std::uint64_t start, end, file_offset, inode;
  std::uint32_t device_major, device_minor;
  std::uint32_t perms;
  Backing backing;
  std::uint32_t path_bytes;
  std::uint32_t run_count;
};

// Bits of WalkRun::bits. Counted in RSS: present and none of zero, guard, not_rss.
struct PageBits {
  static constexpr std::uint32_t present = 1;
  static constexpr std::uint32_t swapped = 2;
  static constexpr std::uint32_t file = 4;       // pagemap bit 61: page cache or shmem
  static constexpr std::uint32_t exclusive = 8;  // pagemap bit 56: mapped once
  static constexpr std::uint32_t zero = 16;      // the shared zero page
  static constexpr std::uint32_t huge = 32;
  static constexpr std::uint32_t write_tracked = 64;  // pagemap bit 57: still protected, so unwritten
  static constexpr std::uint32_t guard = 128;
  static constexpr std::uint32_t not_rss = 256;  // present but not in RSS: hugetlb, PFN-mapped
};

struct WalkRun {
  std::uint32_t bits;
  std::uint32_t page_count;
};

// Live bytes of small blocks on the pages of a walk, as read from the target right after it. Pages that are not listed
// never held a small block (or were not resident). Values are PageLiveness of the page, or, where previous_ns is not 0,
// what to xor with the value of the liveness frame whose walk ended then (a page that was not listed there counts as
// 0).
struct LivenessHeader {
  std::uint64_t walk_end_ns;  // = WalkHeader::end_ns of its walk
  std::uint64_t previous_ns;  // 0: whole
  std::uint32_t range_count;
  std::uint32_t flags;                // LivenessFlags
  std::uint64_t table_live_bytes;     // sum over the table, also of pages that are not resident
  std::uint64_t underflowed_pages;    // more was released than allocated: blocks from before us
  std::uint64_t pymalloc_live_bytes;  // of them in CPython's small-object pools
};

struct LivenessFlags {
  static constexpr std::uint32_t no_table = 1;      // only pymalloc's pages are listed
  static constexpr std::uint32_t not_readable = 2;  // the target's memory may not be read: nothing is listed
};

// Then: page_count x u16 PageLiveness, padded to 8.
struct LivenessRange {
  std::uint64_t start;
  std::uint32_t page_count, reserved;
};

struct PageLiveness {
  static constexpr std::uint16_t live_units = 0x3ff;  // of 8 bytes, 0 to 512
  static constexpr std::uint16_t pymalloc = 0x4000;   // part of a pool of CPython's small-object allocator
  static constexpr std::uint16_t ever_held = 0x8000;  // a small block was, or is, on it
};

// An array or tensor that shows a small part of a larger one, which nothing but such views keeps alive.
struct RetainingView {
  std::uint64_t view, buffer;  // addresses of the block of the view's Python object, and of the larger one's data
  std::uint64_t buffer_bytes, view_bytes;
};

struct ViewsHeader {
  std::uint64_t walk_end_ns;  // = WalkHeader::end_ns of its walk
};

// What anonymous pages that are mapped 2 MiB at a time hold: every stride-th of them was inspected.
struct HugePagesHeader {
  std::uint64_t walk_end_ns;  // = WalkHeader::end_ns of its walk
  std::uint32_t stride, reserved;
};

struct HugePage {
  static constexpr std::uint64_t bytes = 2ULL * 1024 * 1024;
  std::uint64_t start;
  std::array<std::uint64_t, 8> zero;  // a bit per 4 KiB, the lowest one first: it holds zeros only
};

// Pages given up with MADV_FREE that are still there, as smaps reported at read_ns, in mappings that have any: no other
// source shows which were written to since.
struct LazyFreeHeader {
  std::uint64_t walk_end_ns;  // = WalkHeader::end_ns of its walk
  std::uint64_t read_ns;      // when it had been read
};

struct LazyFreeMapping {
  std::uint64_t start, end;
  std::uint64_t bytes;
};

// Pages write-protected by userfaultfd (UFFD_FEATURE_WP_ASYNC, Linux 6.7) from begin_ns to end_ns, or in the walk that
// begins at end_ns: in walks after that they have PageBits::write_tracked until they are written to.
// A page in no such frame says nothing. Tracking ends with the image (exec), and for what is unmapped.
struct TrackedHeader {
  std::uint64_t begin_ns, end_ns;
  std::uint32_t run_count, reserved;
};

struct Poll {
  std::uint64_t time_ns;
  std::uint64_t rss_pages, shared_pages;  // statm fields 2 and 3
  std::uint64_t minor_faults, major_faults;
};

// Bytes of the heap that were live, as the shim counts them (ProcessSlot::live_bytes), where they had changed.
struct LivePoll {
  std::uint64_t time_ns;
  std::int64_t live_bytes;
};

struct TextHeader {
  std::uint64_t time_ns;
  std::uint32_t moment;  // WalkTrigger
  std::uint32_t text_bytes;
};

static_assert(sizeof(FileHeader) == 64 && sizeof(FrameHeader) == 40 && sizeof(SegmentHeader) == 24);
static_assert(sizeof(WalkHeader) == 64 && sizeof(WalkVma) == 56 && sizeof(WalkRun) == 8);
static_assert(sizeof(LivenessHeader) == 48 && sizeof(LivenessRange) == 16 && sizeof(RetainingView) == 32);
static_assert(sizeof(TrackedHeader) == 24 && sizeof(HugePagesHeader) == 16 && sizeof(HugePage) == 72);
static_assert(sizeof(LazyFreeHeader) == 16 && sizeof(LazyFreeMapping) == 24);
static_assert(sizeof(Poll) == 40 && sizeof(TextHeader) == 16);
static_assert(std::has_unique_object_representations_v<WalkVma>);

}  // namespace whyrss::trace
