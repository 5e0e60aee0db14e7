// Run-length page classes of VMAs, read from an open /proc/PID/pagemap.
#pragma once

#include <cstdint>
#include <vector>

#include "collect/read/page_walk.h"
#include "support/page_size.h"

namespace whyrss {

inline constexpr std::uint64_t kLongRunPages = 512;

// Appends pages to the runs of one VMA, joining equal neighbours.
class RunBuilder {
 public:
  RunBuilder(std::vector<trace::WalkRun>& runs, std::uint64_t page_count) : runs_(&runs), left_(page_count) {}
  // Takes at most what is left of the VMA.
  void add(std::uint32_t bits, std::uint64_t page_count);
  // Fills the rest with absent pages.
  void finish() { add(0, left_); }

 private:
  std::vector<trace::WalkRun>* runs_;
  std::uint64_t left_;
};

// Pages of these mappings belong to their process alone, but for what a fork shares.
bool is_own(const trace::WalkVma& vma);

struct ScanPlan {
  const KnownMemory& known;
  Relatives relatives = Relatives::possible;
  bool trusts_shared = false;  // that others may map but `known.shared`
  // Long runs that were all there are taken for unchanged: what is gone of them is missing in RSS, and pages that come
  // come where none was.
  bool takes_long_runs = false;
  PageVisitor* visitor = nullptr;
};

// Fills the runs of all VMAs, with PAGEMAP_SCAN, looking only at populated regions.
enum class ScanEnd {
  whole,
  process_ended,
  has_relatives
};  // the last: though none were to be there; runs are not whole
ScanEnd scan_runs(int pagemap_fd, const WalkMethods& methods, std::vector<WalkedVma>& vmas, const ScanPlan& plan);
// Without it, reading an entry for every page; zero pages look like inherited ones. False when the process ended.
bool read_runs(int pagemap_fd, const WalkMethods& methods, std::vector<WalkedVma>& vmas);

// True when the kernel knows PAGEMAP_SCAN (with its guard category) on this process's own pagemap.
bool has_pagemap_scan(int pagemap_fd, bool with_guards);

}  // namespace whyrss
