// One walk over every page of a process: which are resident, and what the kernel says of each.
//
// Reads /proc/PID/maps, asks PAGEMAP_SCAN for the populated regions (at most 8 MiB of pages per call, so
// that the target's own mmap calls never wait long) and reads pagemap only there, and not where that can tell
// nothing new: it walks each page itself, which takes ten times as long. Counted pages equal
// smaps' Rss and statm to the page when the process stands still.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "collect/read/backing.h"
#include "procfs/page_scan.h"
#include "shim/trace/recording_format.h"
#include "support/result.h"

namespace whyrss {

// What the kernel offers; each false has its fallback (WalkFlags say so).
struct WalkMethods {
  bool pagemap = true;
  bool scan = true;         // PAGEMAP_SCAN, Linux 6.7
  bool scan_guards = true;  // and its guard category, 6.15
  // Called between the pieces of a walk, which takes long in a large process.
  std::function<void()> between = {};
};
WalkMethods probe_walk_methods();

struct WalkedVma {
  trace::WalkVma vma{};
  std::string path;
  std::vector<trace::WalkRun> runs;  // cover the VMA without gaps
};

struct PageWalk {
  trace::WalkHeader header{};
  std::vector<WalkedVma> vmas;
  std::uint64_t counted_pages = 0;                                 // in RSS
  std::uint64_t minor_faults_before = 0, major_faults_before = 0;  // of the process at begin_ns
  bool is_lone = false;                                            // no other process maps its private anonymous pages
};

// True for a run that RSS counts.
bool is_counted(std::uint32_t bits);

// What an earlier walk said about pages of mapped files that no process can have a private copy of. Such a
// page stays what it is as long as it is mapped, but for whether others map it too: pages found there
// again are not looked up again, which is three quarters of what a walk costs.
struct KnownPages {
  std::uint64_t start, end;
  std::uint64_t inode, file_offset;
  std::uint32_t device_major, device_minor;
  std::vector<trace::WalkRun> runs;
};

struct PageSpan {
  std::uint64_t start, end;
};

// All that the next walk may take from this one, if the process has not forked since. Of private anonymous memory:
// - long runs of plain pages that no other process maps. Nothing but RSS tells when some of them go away; a walk that
//   finds too little in RSS walks all of them.
// - where pages are that others may map. All else is, and will be, the process's own.
struct KnownMemory {
  std::vector<KnownPages> files;
  std::vector<PageSpan> own;
  bool knows_shared = false;
  std::vector<PageSpan> shared;
  std::uint64_t shared_pages = 0;  // in these
  std::int64_t beyond_statm = 0;   // pages that the walk counted beyond what statm reported
};
KnownMemory known_memory(const PageWalk& walk);

// Sees populated pages, in address order, a moment before they become part of a walk by PAGEMAP_SCAN.
class PageVisitor {
 public:
  virtual ~PageVisitor() = default;
  // The mappings of the walk, which stay where they are.
  virtual void begin(const std::vector<WalkedVma>& vmas) = 0;
  // `entries` of pagemap: one for each page of the region, or one for all of a huge page. True: it has done something
  // that may have changed them, and they are read again; but what was not write-protected is reported so.
  virtual bool visit(const ScanRegion& region, std::span<const std::uint64_t> entries) = 0;
};

// Whether others may map what a fork has shared: without any, each private anonymous page is mapped once. A walk that
// finds others where there were to be none walks all pages.
enum class Relatives { possible, none };

// Fails when the process cannot be walked at all (ended, another user's, not dumpable).
Result<PageWalk> walk_pages(pid_t pid, trace::WalkTrigger trigger, const WalkMethods& methods,
                            BackingResolver& resolver, const KnownMemory& known = {},
                            Relatives relatives = Relatives::possible, PageVisitor* visitor = nullptr);

// The payload of a walk frame.
std::vector<std::byte> encode_walk(const PageWalk& walk);

}  // namespace whyrss
