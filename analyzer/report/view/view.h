// All that the report formats show, computed once, so that every number in one format equals the same
// number in every other. Sizes are bytes. A View points into its RecordingAccount, which must outlive it.
//
// The state of a process at a time is its last walk at or before it; without one it is 0 (a process is
// walked soon after its birth). One that ended keeps its last walk.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/account.h"
#include "report/view/interval.h"

namespace whyrss {

// State at the interval's start and end, and the largest seen in it.
struct Figure {
  std::int64_t first = 0, last = 0, peak = 0;
  [[nodiscard]] std::int64_t growth() const { return last - first; }
};

// The same from kernel readings, which may be missing.
struct ReadFigure {
  std::optional<std::int64_t> first, last, peak;
  bool ends_estimate = false, peak_estimate = false;  // it had moved since it was read
  [[nodiscard]] bool estimate() const { return ends_estimate || peak_estimate; }
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

// Which call gave up a part of a lazy_free site.
struct AdviceView {
  StackId stack = kEmptyStack;
  std::int64_t growth = 0;
  std::int64_t resident = 0;  // at the interval's end
};

// Who touched a site, and who gave it up.
struct SiteShares {
  // Largest growth first; it sums to the site's, and what no recorded touch explains has the empty stack and is not
  // by_kernel. Empty: of nothing here it is known who touched it.
  std::vector<TouchView> touched{};
  std::vector<AdviceView> advised{};  // lazy_free only: largest growth first, sums to the site's
};

// A recording of many processes has millions of them.
struct SiteView {
  StackId stack = kEmptyStack;
  bool in_large_block = false;
  const std::string* name = nullptr;  // of the mapping; nullptr: ""
  std::int64_t growth = 0;
  std::int64_t resident = 0;   // at the interval's end
  std::int64_t at_peak = 0;    // in the walk where the process's RSS was largest
  std::int64_t exclusive = 0;  // of `resident`: mapped by this process alone
  std::int64_t huge = 0;       // resident only because of huge pages, at the last walk that inspected those
  double variance = 0;         // of `growth`, where it is an estimate from samples: at most this
  std::shared_ptr<const SiteShares> shares{};  // nullptr: nothing is known

  [[nodiscard]] const std::string& mapping() const;  // "" if nameless
  [[nodiscard]] const std::vector<TouchView>& touched() const;
  [[nodiscard]] const std::vector<AdviceView>& advised() const;
};

struct CauseView {
  Cause cause = Cause::unknown;
  Figure rss;
  std::int64_t at_peak = 0;                // in the walk where the process's RSS was largest
  std::int64_t uss_growth = 0;             // from exclusive bits
  std::optional<std::int64_t> sole_owner;  // fork_shared only: bytes that no other process maps any more
  bool estimate = false;
  double variance = 0;          // of the growth, where an end of the interval is an estimate from events
  std::vector<SiteView> sites;  // largest growth first; their growth sums to rss.growth()
};

// Which of a site's figures is asked for, where only one can be shown.
enum class SiteFigure : std::uint8_t {
  resident,  // at the interval's end
  growth,    // from its begin to its end
  at_peak,   // in the walk where the process's RSS was largest
};

inline std::int64_t figure_of(const SiteView& site, SiteFigure which) {
  if (which == SiteFigure::growth) return site.growth;
  return which == SiteFigure::at_peak ? site.at_peak : site.resident;
}

// Of all its sites, which they sum to.
inline std::int64_t figure_of(const CauseView& cause, SiteFigure which) {
  if (which == SiteFigure::growth) return cause.rss.growth();
  return which == SiteFigure::at_peak ? cause.at_peak : cause.rss.last;
}

inline std::int64_t figure_of(const Figure& figure, SiteFigure which) {
  if (which == SiteFigure::growth) return figure.growth();
  return which == SiteFigure::at_peak ? figure.peak : figure.last;
}

struct CowSiteView {
  StackId allocated_at = kEmptyStack, written_at = kEmptyStack;
  std::int64_t copied = 0;
  double variance = 0;  // of `copied`, where it is an estimate from samples
  bool in_large_block = false;
};

// When a state was, and the walk that it is known from.
struct StateMoment {
  double time_s = 0;
  double walked_s = 0;  // before time_s: what came since is an estimate from polls and events
  [[nodiscard]] bool is_estimate() const { return walked_s < time_s; }
};

struct FinalFrees;

struct ProcessView {
  const ProcessAccount* account = nullptr;
  Interval interval;    // its own: up to its walks nearest to the edges of phases
  bool walked = false;  // else rss, uss and causes are not known
  Figure rss, uss;
  std::optional<StateMoment> at_first, at_last, at_peak;  // of these figures; nothing: it was not there, or not walked
  ReadFigure pss;
  std::optional<std::int64_t> swap, hugetlb, page_tables;  // at the interval's end
  ReadFigure unmapped;                                     // UnmappedMemory, counted at this process
  std::vector<CauseView> causes;                           // largest growth first
  PymallocBytes pymalloc, pymalloc_growth;                 // at the interval's end, and since its start
  std::int64_t copied = 0;                                 // of what a fork made shared, by this process
  std::int64_t doubtful_copies = 0;                        // of those, what another process may have copied instead
  std::int64_t copied_by_relatives = 0, left_by_relatives = 0, reused = 0;  // as in SharingChange
  bool copies_estimate = false;        // who copied is likely, not certain: not all writes were tracked to the end
  std::vector<CowSiteView> cow_sites;  // sum to `copied`
  std::shared_ptr<const FinalFrees> final_frees{};  // nullptr: it did not free on its way out, or not in this interval

  [[nodiscard]] const CauseView* find(Cause cause) const;
};

// What a tool that reads /proc would have shown of one process.
struct AccountingEntry {
  int pid = 0;
  bool estimate = false;             // USS and PSS: RSS had moved since they were read
  std::int64_t rss = 0, shared = 0;  // shared: of files and shmem, statm's third field
  std::optional<std::int64_t> uss, pss;
};

// The same of all processes at one moment, each counted as often as it is mapped but in the PSS.
struct AccountingMoment {
  double time_s = 0, spread_s = 0;  // each process was read within spread_s of it
  std::vector<AccountingEntry> processes;
  bool estimate = false;     // of some of them
  std::size_t left_out = 0;  // small ones that were not read then
  std::int64_t rss = 0, shared = 0;
  std::optional<std::int64_t> uss, pss;
  std::optional<std::int64_t> pss_anonymous, pss_file, pss_shmem;  // they sum to the PSS
  std::optional<std::int64_t> unmapped{};                          // UnmappedMemory: in no RSS and no PSS
};

// What batch systems and tools take for the memory of all processes together.
struct AccountingView {
  std::int64_t rss_sum = 0;              // at most; shared pages count in every process: Slurm's default
  std::int64_t rss_less_shared = 0;      // at most; without files and shmem, what a fork shares still counts in each
  std::optional<AccountingMoment> peak;  // when they had most; nothing where no process was read
};

struct FamilyView {
  ReadFigure pss;
  Figure rss_sum;
  ReadFigure unmapped;         // UnmappedMemory of all
  double unmapped_peak_s = 0;  // when that was most
  AccountingView accounting;
};

struct View {
  const RecordingAccount* recording = nullptr;
  Interval interval;
  FamilyView family;  // of all processes, also when the view shows only one
  std::vector<ProcessView> processes;
  bool in_notebook = false;  // shown in a cell of one: advice is for what can be done there
  bool is_live = false;      // shown while it is recorded
};

// Whether it was there at any time of the interval.
bool was_there(const View& view, const ProcessView& process);

}  // namespace whyrss
