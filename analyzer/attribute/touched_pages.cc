#include "attribute/touched_pages.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "attribute/range_cursor.h"

namespace whyrss {
namespace {

// A fault on a page of a file maps what the page cache holds around it: fault_around_bytes, 64 KiB unless set otherwise
// (/sys/kernel/debug/fault_around_bytes, mm/memory.c), within the aligned window. Large folios may be mapped whole.
constexpr std::uint64_t kFaultAroundBytes = 64ULL * 1024;
constexpr std::uint64_t kHugeBytes = TouchSamples::kStretchBytes;

// A call with fewer faults than this per page of its memory found most of it there: earlier ones keep it.
constexpr double kMostlyAbsent = 0.5;

Range block_around(std::uint64_t page, std::uint64_t block_bytes, const Vma& vma) {
  const std::uint64_t start = page & ~(block_bytes - 1);
  return {std::max(start, vma.start), vma.end - start > block_bytes ? start + block_bytes : vma.end};
}

// The pages of files around `run`'s `page` within the window; holes do not matter, private copies end it.
Range fault_around(std::uint64_t page, const ResidentRun* run, const WalkView& walk, const Vma& vma) {
  const Range window = block_around(page, kFaultAroundBytes, vma);
  const ResidentRun* const first = walk.runs.data();
  const ResidentRun* const end = first + walk.runs.size();
  Range range{std::max(run->start, window.start), std::min(run->end, window.end)};
  for (const ResidentRun* at = run; at != first && (at - 1)->end > window.start && (at - 1)->file; --at)
    range.start = std::max((at - 1)->start, window.start);
  for (const ResidentRun* at = run + 1; at != end && at->start < window.end && at->file; ++at)
    range.end = std::min(at->end, window.end);
  return range;
}

TouchExtent extent_of(const ResidentRun& run, bool alone) {
  if (run.huge && alone) return TouchExtent::huge_page;
  return run.file ? TouchExtent::fault_around : TouchExtent::page;
}

// How much of the resident bytes of [start, end) `faults` faults bring in at most: 2 MiB, 64 KiB or a page each.
double part_brought_in(Range range, double faults, const std::vector<ResidentRun>& runs, std::uint64_t page_bytes) {
  double huge_bytes = 0, file_bytes = 0, page_sized_bytes = 0;
  auto run = std::ranges::upper_bound(runs, range.start, {}, &ResidentRun::end);
  for (; run != runs.end() && run->start < range.end; ++run) {
    const auto bytes = static_cast<double>(std::min(run->end, range.end) - std::max(run->start, range.start));
    (run->huge ? huge_bytes : run->file ? file_bytes : page_sized_bytes) += bytes;
  }
  const double resident_bytes = huge_bytes + file_bytes + page_sized_bytes;
  double brought_bytes = 0;
  const auto bring = [&](double bytes, std::uint64_t bytes_per_fault) {
    const double used = std::min(faults, bytes / static_cast<double>(bytes_per_fault));
    brought_bytes += used * static_cast<double>(bytes_per_fault);
    faults -= used;
  };
  bring(huge_bytes, kHugeBytes);
  bring(file_bytes, std::max(kFaultAroundBytes, page_bytes));
  bring(page_sized_bytes, page_bytes);
  return resident_bytes > 0 ? std::min(1.0, brought_bytes / resident_bytes) : 0;
}

}  // namespace

const ResidentRun* TouchedPages::run_at_last_walk(std::uint64_t page) {
  const auto run = std::ranges::upper_bound(last_runs_, page, {}, &ResidentRun::end);
  if (run == last_runs_.end() || run->start > page || gone_.find(page) != gone_.end()) return nullptr;
  return &*run;
}

bool TouchedPages::is_candidate(const TouchSample& fault, bool shared) {
  const TouchSample* before = samples_.find(fault.page);
  const ResidentRun* run = run_at_last_walk(fault.page);
  if (run != nullptr && run->file) return true;
  // The kernel tells of a whole huge page whether its first part is mapped once; only shared ones fault again.
  const bool shared_at_walk = run != nullptr && (!run->exclusive || run->huge);
  const auto forked = forked_.find(fault.page);
  const bool there_at_fork =
      (before != nullptr ? before->time_ns < fork_ns_ : run != nullptr && last_begin_ns_ < fork_ns_) ||
      (forked != forked_.end() && forked->second.value < fault.time_ns);
  return shared || shared_at_walk || there_at_fork;
}

void TouchedPages::add(const TouchSample& sample, bool shared, bool watched) {
  used_ = true;
  TouchSample fault = sample;
  fault.page &= ~(page_bytes_ - 1);
  fault.extent = TouchExtent::unsettled;
  if (is_candidate(fault, shared)) return candidates_.put(fault);
  const TouchSample* before = samples_.find(fault.page);
  const ResidentRun* run = run_at_last_walk(fault.page);
  const bool seen_there = run != nullptr || (before != nullptr && before->extent != TouchExtent::unsettled);
  if (watched && seen_there) return;
  samples_.put(fault);
}

void TouchedPages::add(const KernelTouch& touch) {
  if (touch.start >= touch.end || touch.faults == 0) return;
  used_ = true;
  const auto pages = static_cast<double>(touch.end - touch.start) / static_cast<double>(page_bytes_);
  const KernelPart part{.stack = touch.stack,
                        .time_ns = touch.time_ns,
                        .faults_per_page = static_cast<double>(touch.faults) / pages,
                        .calls = touch.calls};
  if (part.faults_per_page >= kMostlyAbsent) return kernel_.assign(touch.start, touch.end, part);
  std::vector<Range> gaps;
  std::uint64_t at = touch.start;
  kernel_.visit_within(touch.start, touch.end, [&](std::uint64_t start, std::uint64_t end, const KernelPart&) {
    if (start > at) gaps.push_back({at, start});
    at = end;
  });
  if (at < touch.end) gaps.push_back({at, touch.end});
  for (const Range& gap : gaps) kernel_.assign(gap.start, gap.end, part);
}

void TouchedPages::begin_block(std::uint64_t address, std::uint64_t size_bytes, std::uint64_t time_ns) {
  // The allocator touches the block as well (calloc), and says so afterwards.
  constexpr std::uint64_t kCallNs = 1'000'000, kNsPerByte = 1;
  constexpr std::uint64_t kLargestBytes = std::uint64_t{1} << 40;
  if (!used_ || size_bytes > kLargestBytes) return;
  const std::uint64_t call_ns = kCallNs + size_bytes * kNsPerByte;
  const std::uint64_t before_ns = time_ns - std::min(time_ns, call_ns);
  const std::uint64_t mask = page_bytes_ - 1, start = (address + mask) & ~mask, end = (address + size_bytes) & ~mask;
  if (start >= end) return;
  samples_.change_within(start, end, [&](TouchSample& sample) { sample.before_block |= sample.time_ns < before_ns; });
  IntervalMap<KernelPart> old;
  kernel_.visit_within(start, end, [&](std::uint64_t from, std::uint64_t to, const KernelPart& part) {
    if (part.time_ns >= before_ns || part.before_block) return;
    KernelPart before = part;
    before.before_block = true;
    old.assign(from, to, before);
  });
  for (const auto& [from, interval] : old.intervals()) kernel_.assign(from, interval.end, interval.value);
}

void TouchedPages::drop(std::uint64_t start, std::uint64_t end) {
  forked_.erase(start, end);
  if (!last_runs_.empty()) gone_.assign(start, end, true);
  if (!used_) return;
  samples_.erase(start, end);
  kernel_.erase(start, end);
}

TouchedPages::Part TouchedPages::within(std::uint64_t start, std::uint64_t end) const {
  Part part{.start = start, .end = end, .samples = {}, .kernel = {}};
  if (!used_) return part;
  samples_.visit_within(start, end, [&](const TouchSample& sample) { part.samples.push_back(sample); });
  kernel_.visit_within(start, end, [&](std::uint64_t from, std::uint64_t to, const KernelPart& kernel) {
    part.kernel.assign(from, to, kernel);
  });
  return part;
}

void TouchedPages::restore(const Part& part, std::uint64_t new_start) {
  for (TouchSample sample : part.samples) {
    sample.page = sample.page - part.start + new_start;
    samples_.put(sample);
  }
  for (const auto& [from, interval] : part.kernel.intervals())
    kernel_.assign(from - part.start + new_start, interval.end - part.start + new_start, interval.value);
  if (part.start == new_start) gone_.erase(part.start, part.end);  // nothing moved
}

void TouchedPages::begin_as_fork_child() {
  candidates_.clear();
  last_runs_.clear();
  gone_.clear();
  forked_.clear();
  fork_ns_ = last_begin_ns_ = born_ns_ = 0;
}

void TouchedPages::note_fork(std::uint64_t time_ns) { fork_ns_ = std::max(fork_ns_, time_ns); }

void TouchedPages::note_inherited(std::uint64_t start, std::uint64_t end, std::uint64_t fork_ns) {
  forked_.assign(start, end, fork_ns);
  std::vector<TouchSample> since;  // the child tells it a while after the fork
  samples_.visit_within(start, end, [&](const TouchSample& sample) {
    if (sample.time_ns > fork_ns && sample.extent == TouchExtent::unsettled) since.push_back(sample);
  });
  for (const TouchSample& sample : since) {
    samples_.erase(sample.page, sample.page + page_bytes_);
    candidates_.put(sample);
  }
}

void TouchedPages::keep_inherited(const std::vector<ForkRange>& inherited, std::uint64_t fork_ns) {
  RangeCursor inherited_at(inherited);
  samples_.for_each_stretch([&](TouchSamples::Stretch& stretch) {
    std::erase_if(stretch, [&](const TouchSample& sample) {
      return inherited_at.at(sample.page) == nullptr && sample.time_ns < fork_ns;
    });
  });
  IntervalMap<KernelPart> kept;
  for (const auto& [start, interval] : kernel_.intervals())
    if (interval.value.time_ns >= fork_ns) kept.assign(start, interval.end, interval.value);
  for (const ForkRange& range : inherited)
    kernel_.visit_within(range.start, range.end, [&](std::uint64_t start, std::uint64_t end, const KernelPart& part) {
      kept.assign(start, end, part);
    });
  kernel_ = std::move(kept);
  born_ns_ = fork_ns;
}

// Who touched the original says nothing about a copy.
void TouchedPages::leave_originals(const std::vector<ForkRange>& inherited) {
  if (born_ns_ == 0) return;
  RangeCursor inherited_at(inherited);
  samples_.for_each_stretch([&](TouchSamples::Stretch& stretch) {
    std::erase_if(stretch, [&](const TouchSample& sample) {
      const ForkRange* range = sample.time_ns < born_ns_ ? inherited_at.at(sample.page) : nullptr;
      return range != nullptr && range->fork_class == ForkClass::copied;
    });
  });
  for (const ForkRange& range : inherited) {
    if (range.fork_class != ForkClass::copied) continue;
    std::vector<Range> old;
    kernel_.visit_within(range.start, range.end, [&](std::uint64_t start, std::uint64_t end, const KernelPart& part) {
      if (part.time_ns < born_ns_) old.push_back({start, end});
    });
    for (const Range& gone : old) kernel_.erase(gone.start, gone.end);
  }
}

// A private copy that the walk found: the write that made it is who touched the page now.
void TouchedPages::take_copies(const WalkView& walk) {
  leave_originals(walk.inherited);
  RangeCursor runs(walk.runs);
  RangeCursor vmas(walk.vmas);
  RangeCursor inherited(walk.inherited);
  candidates_.for_each_stretch([&](TouchSamples::Stretch& stretch) {
    std::erase_if(stretch, [&](const TouchSample& sample) { return sample.time_ns < last_begin_ns_; });
    for (TouchSample sample : stretch) {
      const ResidentRun* run = runs.at(sample.page);
      const Vma* vma = vmas.at(sample.page);
      if (run == nullptr || run->file || vma == nullptr) continue;
      const ForkRange* fork = inherited.at(sample.page);
      const bool copied = fork != nullptr && fork->fork_class == ForkClass::copied;
      if (!copied && is_private_anonymous(*vma)) continue;
      sample.extent = TouchExtent::page;
      samples_.put(sample);
    }
  });
}

void TouchedPages::settle_samples(const WalkView& walk, std::vector<TouchedRange>& ranges) {
  RangeCursor runs(walk.runs);
  RangeCursor vmas(walk.vmas);
  samples_.for_each_stretch([&](TouchSamples::Stretch& stretch) {
    // A huge page is one fault: where there were more, they came before the kernel put small pages together.
    const bool alone = std::ranges::count(stretch, TouchExtent::unsettled, &TouchSample::extent) == 1;
    std::size_t kept = 0;
    for (TouchSample sample : stretch) {
      const ResidentRun* run = runs.at(sample.page);
      const Vma* vma = vmas.at(sample.page);
      const bool there = run != nullptr && vma != nullptr;
      if (!there && sample.time_ns < walk.begin_ns) continue;
      if (there) {
        if (sample.extent == TouchExtent::unsettled) sample.extent = extent_of(*run, alone);
        Range range{sample.page, sample.page + page_bytes_};
        if (sample.extent == TouchExtent::huge_page) range = block_around(sample.page, kHugeBytes, *vma);
        if (sample.extent == TouchExtent::fault_around && run->file) range = fault_around(sample.page, run, walk, *vma);
        if (!sample.before_block)
          ranges.push_back({.start = range.start,
                            .end = range.end,
                            .weight = static_cast<double>(std::max<std::uint32_t>(sample.weight, 1)),
                            .stack = sample.stack});
      }
      stretch[kept++] = sample;
    }
    stretch.resize(kept);
  });
}

void TouchedPages::settle_kernel(const WalkView& walk, std::vector<TouchedRange>& ranges) {
  IntervalMap<KernelPart> kept;
  RangeCursor runs(walk.runs);
  for (const auto& [start, interval] : kernel_.intervals()) {
    KernelPart part = interval.value;
    if (part.part < 0) {
      const auto pages = static_cast<double>(interval.end - start) / static_cast<double>(page_bytes_);
      part.part = part_brought_in({start, interval.end}, part.faults_per_page * pages, walk.runs, page_bytes_);
    }
    for (std::uint64_t at = start; at < interval.end;) {
      const ResidentRun* run = runs.at(at);
      const std::uint64_t end = std::min(interval.end, runs.boundary(at));
      if (run != nullptr && part.part > 0) {
        kept.assign(at, end, part);
        if (!part.before_block)
          ranges.push_back({.start = at,
                            .end = end,
                            .weight = part.part,
                            .stack = part.stack,
                            .by_kernel = true,
                            .calls = part.calls});
      } else if (part.time_ns >= walk.begin_ns) {
        kept.assign(at, end, interval.value);
      }
      at = end;
    }
  }
  kernel_ = std::move(kept);
}

std::vector<TouchedRange> TouchedPages::observe(const WalkView& walk) {
  std::vector<TouchedRange> ranges;
  if (used_) {
    take_copies(walk);
    settle_samples(walk, ranges);
    settle_kernel(walk, ranges);
    std::ranges::stable_sort(ranges, {}, &TouchedRange::start);
  }
  last_runs_ = walk.runs;
  gone_.clear();
  std::vector<Range> seen;
  for (const auto& [start, interval] : forked_.intervals())
    if (interval.value < walk.begin_ns) seen.push_back({start, interval.end});
  for (const Range& range : seen) forked_.erase(range.start, range.end);
  last_begin_ns_ = walk.begin_ns;
  return ranges;
}

SinceWalk TouchedPages::since_walk() const {
  SinceWalk since;
  for (const auto& [start, interval] : gone_.intervals()) since.gone.push_back({start, interval.end});
  for (const ResidentRun& run : last_runs_) {
    ResidentRun left = run;
    gone_.visit_within(run.start, run.end, [&](std::uint64_t start, std::uint64_t end, bool) {
      if (left.start < start) since.left.push_back(left), since.left.back().end = start;
      left.start = end;
    });
    if (left.start < left.end) since.left.push_back(left);
  }
  constexpr std::uint64_t kEver = std::numeric_limits<std::uint64_t>::max();
  RangeCursor left(since.left);
  samples_.visit_within(0, kEver, [&](const TouchSample& sample) {
    if (sample.extent == TouchExtent::unsettled && left.at(sample.page) == nullptr) since.touched.push_back(sample);
  });
  since.written = copy_candidates(0, kEver, last_begin_ns_, kEver);
  for (const auto& [start, interval] : kernel_.intervals()) {
    if (interval.value.part >= 0) continue;
    const double pages = static_cast<double>(interval.end - start) / static_cast<double>(page_bytes_);
    since.by_kernel.push_back({.start = start,
                               .end = interval.end,
                               .faults = static_cast<std::uint64_t>(interval.value.faults_per_page * pages),
                               .stack = interval.value.stack,
                               .time_ns = interval.value.time_ns,
                               .calls = interval.value.calls});
  }
  return since;
}

std::vector<TouchSample> TouchedPages::copy_candidates(std::uint64_t start, std::uint64_t end, std::uint64_t from_ns,
                                                       std::uint64_t to_ns) const {
  std::vector<TouchSample> found;
  candidates_.visit_within(start, end, [&](const TouchSample& sample) {
    if (sample.time_ns >= from_ns && sample.time_ns < to_ns) found.push_back(sample);
  });
  return found;
}

}  // namespace whyrss
