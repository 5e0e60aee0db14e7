// All that the report formats show, computed once, so that every number in one format equals the same
// number in every other. Sizes are bytes. A View points into its RecordingAccount, which must outlive it.
//
// The state of a process at a time is its last walk at or before it; without one it is 0 (a process is
// walked soon after its birth). One that ended keeps its last walk.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/account.h"
#include "report/interval.h"

namespace whyrss {

// State at the interval's start and end, and the largest seen in it.
struct Figure {
  std::int64_t first = 0, last = 0, peak = 0;
  [[nodiscard]] std::int64_t growth() const { return last - first; }
};

// The same from kernel readings, which may be missing.
struct ReadFigure {
  std::optional<std::int64_t> first, last, peak;
  [[nodiscard]] std::optional<std::int64_t> growth() const {
    return first && last ? std::optional(*last - *first) : std::nullopt;
  }
};

// Who made a part of a site resident.
struct TouchView {
  StackId stack = kEmptyStack;
  bool by_kernel = false;
  std::int64_t growth = 0;
  std::int64_t resident = 0;  // at the interval's end
  double variance = 0;        // of `growth`
};

struct SiteView {
  StackId stack = kEmptyStack;
  std::string mapping;  // "" if nameless
  std::int64_t growth = 0;
  std::int64_t resident = 0;  // at the interval's end
  std::int64_t at_peak = 0;   // in the walk where the process's RSS was largest
  double variance = 0;        // of `growth`, where it is an estimate from samples: at most this
  // Largest growth first; it sums to the site's, and what nobody was seen to touch has the empty stack and is not
  // by_kernel. Empty: of nothing here it is known who touched it.
  std::vector<TouchView> touched{};
};

struct CauseView {
  Cause cause = Cause::unknown;
  Figure rss;
  std::int64_t at_peak = 0;                // in the walk where the process's RSS was largest
  std::int64_t uss_growth = 0;             // from exclusive bits
  std::optional<std::int64_t> sole_owner;  // fork_shared only: bytes that nobody else maps any more
  bool estimate = false;
  std::vector<SiteView> sites;  // largest growth first; their growth sums to rss.growth()
};

struct CowSiteView {
  StackId allocated_at = kEmptyStack, written_at = kEmptyStack;
  std::int64_t copied = 0;
  double variance = 0;  // of `copied`, where it is an estimate from samples
};

struct ProcessView {
  const ProcessAccount* account = nullptr;
  bool walked = false;  // else rss, uss and causes are not known
  Figure rss, uss;
  ReadFigure pss;
  std::optional<std::int64_t> swap, hugetlb, page_tables;  // at the interval's end
  std::vector<CauseView> causes;                           // largest growth first
  PymallocBytes pymalloc, pymalloc_growth;                 // at the interval's end, and since its start
  std::int64_t copied = 0;                                 // of what a fork made shared, by this process
  std::int64_t copied_by_relatives = 0, left_by_relatives = 0, reused = 0;  // as in SharingChange
  std::vector<CowSiteView> cow_sites;                                       // sum to `copied`

  [[nodiscard]] const CauseView* find(Cause cause) const;
};

// The largest of what a batch system may take for the memory of all processes together, by statm's readings.
struct AccountingView {
  std::int64_t rss_sum = 0;          // shared pages count in every process: Slurm's default
  std::int64_t rss_less_shared = 0;  // without pages of files and shmem; pages shared by fork still count in each
};

struct FamilyView {
  ReadFigure pss;
  Figure rss_sum;
  AccountingView accounting;
};

struct View {
  const RecordingAccount* recording = nullptr;
  Interval interval;
  FamilyView family;  // of all processes, also when the view shows only one
  std::vector<ProcessView> processes;
};

// `only_pid`: show that process alone.
View build_view(const RecordingAccount& recording, Interval interval, std::optional<int> only_pid = std::nullopt);

}  // namespace whyrss
