// What changed between two runs of a job: two folded jobs beside each other. Sizes are bytes.
//
// Processes are summed at the peak of each. Groups are found again by name, nodes by the ranks that they ran, else by
// name, lines within a group as in a difference of recordings (report/diff/diff_lines). A part does not list all lines:
// what a line may have more is in its figure, and a change that this could explain is none.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "job/job_view.h"
#include "report/diff/diff.h"

namespace whyrss {

// Processes alike of both; of one side nothing where it has no such group.
struct GroupDiff {
  const JobGroup* a = nullptr;
  const JobGroup* b = nullptr;
  DiffFigure sum{}, median{}, p95{}, max{};  // of RSS at the peak of each
  [[nodiscard]] const JobGroup& either() const { return b != nullptr ? *b : *a; }
};

struct JobLineDiff {
  std::size_t group = 0;  // in JobDiff::groups
  DiffLine line{};
};

struct NodeDiff {
  const NodeSum* a = nullptr;
  const NodeSum* b = nullptr;
  DiffFigure total{};    // files and shared memory once
  DiffFigure rss_sum{};  // at the moment when it was most
  DiffFigure pss{};      // the peaks of its processes
};

// Of processes without a rank, which have another pid in each run, those are one that hold the same line on one node.
struct OutlierDiff {
  const Outlier* a = nullptr;
  const Outlier* b = nullptr;
  bool is_missing = false;                      // its rank was not recorded on the other side
  [[nodiscard]] const Outlier& either() const;  // of B, if it is there
};

struct JobDiff {
  const JobView* a = nullptr;
  const JobView* b = nullptr;
  DiffFigure rss{};                                // the peaks of all processes
  std::optional<DiffFigure> pss{};                 // the same; nothing where it was read of none
  DiffFigure once{};                               // the peaks of all nodes, files and shared memory once
  std::vector<DiffCause> causes{};                 // largest change first; sum to rss
  std::vector<GroupDiff> groups{};                 // largest change first
  std::vector<JobLineDiff> lines{};                // largest change first
  std::vector<NodeDiff> nodes{};                   // of both, largest change first
  std::vector<OutlierDiff> outliers;               // new ones first, then those that are gone, then those of both
  std::vector<const NodeSum*> only_a{}, only_b{};  // nodes
};

// `a` and `b` must stay where they are.
JobDiff diff_jobs(const JobView& a, const JobView& b);

}  // namespace whyrss
