#include "collect/read/page_walk.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <span>

#include "collect/read/append_bytes.h"
#include "collect/read/page_runs.h"
#include "procfs/process_stat.h"
#include "procfs/smaps.h"
#include "support/clock.h"
#include "support/file.h"

namespace whyrss {

using trace::Backing;
using trace::PageBits;
using trace::WalkFlags;

namespace {

// A statm reading may miss what each CPU has not yet summed up: 64 pages of each (contract section 4).
constexpr std::int64_t kSkewPagesPerCpu = 64;

// So few of the pages that were taken for unchanged may be gone.
constexpr std::int64_t kUnnoticedPages = 32;

struct Reading {
  ProcessStat stat;
  MemoryPages memory;
};

Result<Reading> read_process(pid_t pid) {
  const auto stat_text = read_line_file(fmt::format("/proc/{}/stat", pid));
  if (!stat_text) return Error{stat_text.error()};
  const auto statm_text = read_line_file(fmt::format("/proc/{}/statm", pid));
  if (!statm_text) return Error{statm_text.error()};
  const auto stat = parse_process_stat(*stat_text);
  const auto memory = parse_statm(*statm_text);
  if (!stat || !memory) return Error{fmt::format("cannot understand /proc/{}/stat", pid)};
  return Reading{.stat = *stat, .memory = *memory};
}

WalkedVma describe(const MapsEntry& entry, pid_t pid, BackingResolver& resolver) {
  using trace::VmaPerms;
  const std::uint32_t perms = (entry.readable ? VmaPerms::read : 0) | (entry.writable ? VmaPerms::write : 0) |
                              (entry.executable ? VmaPerms::exec : 0) | (entry.shared ? VmaPerms::shared : 0);
  return {.vma = {.start = entry.start,
                  .end = entry.end,
                  .file_offset = entry.file_offset,
                  .inode = entry.inode,
                  .device_major = entry.device_major,
                  .device_minor = entry.device_minor,
                  .perms = perms,
                  .backing = resolver.classify(entry, pid),
                  .path_bytes = static_cast<std::uint32_t>(entry.path.size()),
                  .run_count = 0},
          .path = entry.path,
          .runs = {}};
}

// Without PAGEMAP_SCAN a read-only touched page looks like an inherited one; smaps knows how many of
// them there are in the VMA, not which: the first ones are taken.
void correct_zero_pages(WalkedVma& vma, std::uint64_t rss_pages) {
  std::uint64_t counted = 0;
  for (const auto& run : vma.runs)
    if (is_counted(run.bits)) counted += run.page_count;
  std::uint64_t excess = counted > rss_pages ? counted - rss_pages : 0;
  std::vector<trace::WalkRun> corrected;
  for (auto run : vma.runs) {
    const bool candidate = is_counted(run.bits) && (run.bits & PageBits::exclusive) == 0;
    if (candidate && excess > 0) {
      const auto zeros = static_cast<std::uint32_t>(std::min<std::uint64_t>(excess, run.page_count));
      corrected.push_back({.bits = run.bits | PageBits::zero, .page_count = zeros});
      excess -= zeros;
      run.page_count -= zeros;
    }
    if (run.page_count > 0) corrected.push_back(run);
  }
  vma.runs = std::move(corrected);
}

// All that smaps tells, as if the pages lay at the start of the VMA.
void synthesise_runs(WalkedVma& vma, const SmapsEntry& entry) {
  const auto page = static_cast<std::int64_t>(kPageBytes);
  const auto pages = (vma.vma.end - vma.vma.start) / kPageBytes;
  const std::int64_t exclusive = entry.uss_bytes() / page;
  const std::int64_t anonymous = std::min(entry.anonymous_bytes, entry.rss_bytes) / page;
  const std::int64_t file = entry.rss_bytes / page - anonymous;
  RunBuilder runs(vma.runs, pages);
  const std::int64_t exclusive_anonymous = std::min(exclusive, anonymous);
  const std::int64_t exclusive_file = std::min(exclusive - exclusive_anonymous, file);
  runs.add(PageBits::present | PageBits::exclusive, static_cast<std::uint64_t>(exclusive_anonymous));
  runs.add(PageBits::present, static_cast<std::uint64_t>(anonymous - exclusive_anonymous));
  runs.add(PageBits::present | PageBits::file | PageBits::exclusive, static_cast<std::uint64_t>(exclusive_file));
  runs.add(PageBits::present | PageBits::file, static_cast<std::uint64_t>(file - exclusive_file));
  runs.finish();
}

// Pages that KSM has merged are mapped more than once without a fork.
bool has_merged_pages() {
  const auto text = read_line_file("/sys/kernel/mm/ksm/pages_shared");
  return text && !text->starts_with('0');
}

std::uint64_t count_pages(const std::vector<WalkedVma>& vmas) {
  std::uint64_t pages = 0;
  for (const WalkedVma& vma : vmas)
    for (const auto& run : vma.runs)
      if (is_counted(run.bits)) pages += run.page_count;
  return pages;
}

// By how many pages a walk counts more, or less, than statm reported before and after it.
std::int64_t beyond_statm(std::uint64_t counted, std::uint64_t before, std::uint64_t after) {
  const auto [low, high] = std::minmax(before, after);
  return static_cast<std::int64_t>(counted) - static_cast<std::int64_t>(std::clamp(counted, low, high));
}

// Whether pages that were taken for unchanged are gone.
bool misses_pages(pid_t pid, const KnownMemory& known, const PageWalk& walk, std::uint64_t before_pages) {
  const auto text = read_line_file(fmt::format("/proc/{}/statm", pid));
  const auto after = text ? parse_statm(*text) : std::nullopt;
  if (!after) return false;  // it has ended
  return beyond_statm(count_pages(walk.vmas), before_pages, after->resident) > known.beyond_statm + kUnnoticedPages;
}

// Calls visit(pages, bits) for each part of a run in these spans; both are in address order.
template <typename Visit>
void visit_runs(const std::vector<WalkedVma>& vmas, std::span<const PageSpan> spans, Visit visit) {
  for (const WalkedVma& walked : vmas) {
    std::uint64_t at = walked.vma.start;
    for (const trace::WalkRun& run : walked.runs) {
      const std::uint64_t end = at + run.page_count * kPageBytes;
      while (!spans.empty() && spans.front().end <= at) spans = spans.subspan(1);
      for (const PageSpan& span : spans) {
        if (span.start >= end) break;
        visit((std::min(end, span.end) - std::max(at, span.start)) / kPageBytes, run.bits);
      }
      at = end;
    }
  }
}

// Pages that others may map have been moved elsewhere, or given up.
bool lacks_shared_pages(const KnownMemory& known, const PageWalk& walk) {
  std::uint64_t pages = 0;
  visit_runs(walk.vmas, known.shared, [&](std::uint64_t count, std::uint32_t bits) {
    if ((bits & (PageBits::present | PageBits::swapped)) != 0) pages += count;
  });
  return pages < known.shared_pages;
}

struct Scan {
  pid_t pid;
  int pagemap_fd;
  const WalkMethods& methods;
  std::uint64_t rss_pages;  // before it
};

// False when the process ended meanwhile.
bool scan_all(const Scan& scan, ScanPlan plan, PageWalk& walk) {
  const bool may_take = plan.visitor == nullptr && !has_merged_pages();
  if (!may_take) plan.relatives = Relatives::possible;
  plan.trusts_shared = may_take && plan.known.knows_shared;
  plan.takes_long_runs = plan.visitor == nullptr;
  while (true) {
    for (WalkedVma& vma : walk.vmas) vma.runs.clear();
    const ScanEnd end = scan_runs(scan.pagemap_fd, scan.methods, walk.vmas, plan);
    walk.is_lone = plan.relatives == Relatives::none;
    const bool trusts = plan.trusts_shared && !walk.is_lone;
    if (end == ScanEnd::has_relatives || (end == ScanEnd::whole && trusts && lacks_shared_pages(plan.known, walk))) {
      plan.relatives = Relatives::possible;
      plan.trusts_shared = false;
    } else if (end == ScanEnd::whole && plan.takes_long_runs &&
               misses_pages(scan.pid, plan.known, walk, scan.rss_pages)) {
      plan.takes_long_runs = false;
    } else {
      return end == ScanEnd::whole;
    }
  }
}

}  // namespace

WalkMethods probe_walk_methods() {
  const Fd pagemap(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  if (!pagemap) return {.pagemap = false, .scan = false, .scan_guards = false};
  return {.pagemap = true,
          .scan = has_pagemap_scan(pagemap.get(), false),
          .scan_guards = has_pagemap_scan(pagemap.get(), true)};
}

bool is_counted(std::uint32_t bits) {
  return (bits & PageBits::present) != 0 && (bits & (PageBits::zero | PageBits::guard | PageBits::not_rss)) == 0;
}

Result<PageWalk> walk_pages(pid_t pid, trace::WalkTrigger trigger, const WalkMethods& methods,
                            BackingResolver& resolver, const KnownMemory& known, Relatives relatives,
                            PageVisitor* visitor) {
  PageWalk walk;
  walk.header.begin_ns = static_cast<std::uint64_t>(monotonic_ns());
  walk.header.trigger = trigger;
  walk.header.page_bytes = static_cast<std::uint32_t>(kPageBytes);
  const auto before = read_process(pid);
  if (!before) return Error{before.error()};
  const bool with_smaps = !methods.pagemap || !methods.scan;
  const auto text = read_file(fmt::format("/proc/{}/{}", pid, with_smaps ? "smaps" : "maps"));
  if (!text) return Error{text.error()};
  if (text->empty()) return Error{fmt::format("process {} has no memory any more", pid)};

  std::vector<SmapsEntry> smaps;
  std::vector<MapsEntry> entries;
  if (with_smaps) {
    smaps = parse_smaps(*text);
    for (const SmapsEntry& entry : smaps) entries.push_back(entry.range);
  } else {
    entries = parse_maps(*text);
  }
  for (const MapsEntry& entry : entries) walk.vmas.push_back(describe(entry, pid, resolver));

  bool whole = true;
  if (!methods.pagemap) {
    walk.header.flags |= WalkFlags::smaps_only;
    for (std::size_t i = 0; i < walk.vmas.size(); ++i) synthesise_runs(walk.vmas[i], smaps[i]);
  } else {
    const std::string name = fmt::format("/proc/{}/pagemap", pid);
    const Fd pagemap(open(name.c_str(), O_RDONLY | O_CLOEXEC));
    if (!pagemap) return system_error("cannot open", name);
    if (visitor != nullptr) visitor->begin(walk.vmas);
    const Scan scan{.pid = pid, .pagemap_fd = pagemap.get(), .methods = methods, .rss_pages = before->memory.resident};
    whole = methods.scan ? scan_all(scan, {.known = known, .relatives = relatives, .visitor = visitor}, walk)
                         : read_runs(pagemap.get(), methods, walk.vmas);
    if (!methods.scan) {
      walk.header.flags |= WalkFlags::zero_pages_unknown;
      for (std::size_t i = 0; i < walk.vmas.size(); ++i)
        correct_zero_pages(walk.vmas[i], static_cast<std::uint64_t>(smaps[i].rss_bytes) / kPageBytes);
    }
  }

  const auto after = read_process(pid);
  // Another image in the middle of a walk makes it a walk of neither.
  const bool same_image = after && after->stat.start_ticks == before->stat.start_ticks &&
                          after->stat.start_code == before->stat.start_code &&
                          after->stat.start_stack == before->stat.start_stack && after->memory.size > 0;
  if (!whole || !same_image) walk.header.flags |= WalkFlags::partial;

  for (WalkedVma& vma : walk.vmas) vma.vma.run_count = static_cast<std::uint32_t>(vma.runs.size());
  walk.counted_pages = count_pages(walk.vmas);
  walk.header.end_ns = static_cast<std::uint64_t>(monotonic_ns());
  walk.header.statm_before_pages = before->memory.resident;
  walk.header.statm_after_pages = after ? after->memory.resident : 0;
  // A copy that the walk saw is among the faults that it tells, also one that was made while it went on.
  const auto& faults = same_image ? after->stat : before->stat;
  walk.header.minor_faults = faults.minor_faults;
  walk.header.major_faults = faults.major_faults;
  walk.minor_faults_before = before->stat.minor_faults;
  walk.major_faults_before = before->stat.major_faults;
  walk.header.vma_count = static_cast<std::uint32_t>(walk.vmas.size());
  static const auto slack = kSkewPagesPerCpu * sysconf(_SC_NPROCESSORS_ONLN);
  const std::int64_t beyond =
      beyond_statm(walk.counted_pages, walk.header.statm_before_pages, walk.header.statm_after_pages);
  if (std::abs(beyond) > slack) walk.header.flags |= WalkFlags::skewed;
  return walk;
}

namespace {

// Others may map it, or what is written to it is tracked. Who shares a swapped page is not known.
bool may_be_shared(std::uint32_t bits) {
  if ((bits & PageBits::swapped) != 0) return true;
  if (!is_counted(bits)) return false;
  return (bits & PageBits::exclusive) == 0 || (bits & PageBits::write_tracked) != 0;
}

// A huge page may be split, and tells of itself at little cost: it is in no long run.
void add_own_memory(const WalkedVma& walked, KnownMemory& known) {
  std::uint64_t at = walked.vma.start;
  for (const trace::WalkRun& run : walked.runs) {
    const std::uint64_t end = at + run.page_count * kPageBytes;
    if (run.bits == (PageBits::present | PageBits::exclusive) && run.page_count >= kLongRunPages)
      known.own.push_back({.start = at, .end = end});
    if (may_be_shared(run.bits)) {
      known.shared.push_back({.start = at, .end = end});
      known.shared_pages += run.page_count;
    }
    at = end;
  }
}

}  // namespace

KnownMemory known_memory(const PageWalk& walk) {
  KnownMemory known;
  known.knows_shared = walk.header.flags == 0;
  known.beyond_statm = beyond_statm(walk.counted_pages, walk.header.statm_before_pages, walk.header.statm_after_pages);
  for (const WalkedVma& walked : walk.vmas) {
    const auto& [vma, path, runs] = walked;
    if (is_own(vma)) add_own_memory(walked, known);
    if (vma.backing == Backing::file && (vma.perms & trace::VmaPerms::shared) != 0)
      known.files.push_back({.start = vma.start,
                             .end = vma.end,
                             .inode = vma.inode,
                             .file_offset = vma.file_offset,
                             .device_major = vma.device_major,
                             .device_minor = vma.device_minor,
                             .runs = runs});
  }
  return known;
}

std::vector<std::byte> encode_walk(const PageWalk& walk) {
  std::vector<std::byte> out;
  append_bytes(out, &walk.header, sizeof walk.header);
  for (const WalkedVma& vma : walk.vmas) {
    append_bytes(out, &vma.vma, sizeof vma.vma);
    append_bytes(out, vma.path.data(), vma.path.size());
    out.resize(trace::padded(out.size()));
    append_bytes(out, vma.runs.data(), vma.runs.size() * sizeof(trace::WalkRun));
  }
  return out;
}

}  // namespace whyrss
