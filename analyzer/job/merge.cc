#include "job/merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "job/part_file.h"

namespace whyrss {
namespace {

auto identity_of(const PartEntry& entry) { return std::tie(entry.boot_id, entry.host, entry.session); }

// Of two of one recording the larger one is taken.
auto worth_of(const PartEntry& entry) {
  return std::tie(entry.complete, entry.duration_ms, entry.processes, entry.raw_bytes, entry.checksum);
}

struct JobName {
  std::string job, part;
};

// Of the first part that knows its job, and of one that says otherwise.
Status check_jobs(const std::vector<MergeInput>& inputs) {
  JobName first;
  for (const MergeInput& input : inputs)
    for (const PartEntry& entry : input.index.entries) {
      if (entry.job.empty() || entry.job == first.job) continue;
      if (!first.job.empty())
        return Error{fmt::format("{} is of job {}, {} of job {}: merge each job by itself, or add --several-jobs",
                                 first.part, first.job, input.name, entry.job)};
      first = {entry.job, input.name};
    }
  return Done{};
}

}  // namespace

Result<MergePlan> plan_merge(const std::vector<MergeInput>& inputs, bool several_jobs) {
  if (!several_jobs)
    if (const Status one_job = check_jobs(inputs); !one_job) return Error{one_job.error()};
  std::vector<MergePlan::Source> all;
  MergePlan plan;
  for (std::size_t input = 0; input < inputs.size(); ++input) {
    const PartIndex& index = inputs[input].index;
    for (std::size_t entry = 0; entry < index.entries.size(); ++entry) all.push_back({input, entry});
    plan.index.node_lists.insert(plan.index.node_lists.end(), index.node_lists.begin(), index.node_lists.end());
  }
  std::vector<std::string>& lists = plan.index.node_lists;
  std::ranges::sort(lists);
  lists.erase(std::unique(lists.begin(), lists.end()), lists.end());

  const auto entry_of = [&](const MergePlan::Source& source) -> const PartEntry& {
    return inputs[source.input].index.entries[source.entry];
  };
  std::ranges::sort(all, [&](const MergePlan::Source& a, const MergePlan::Source& b) {
    const PartEntry &one = entry_of(a), &other = entry_of(b);
    return identity_of(one) != identity_of(other) ? identity_of(one) < identity_of(other)
                                                  : worth_of(one) > worth_of(other);
  });
  for (const MergePlan::Source& source : all) {
    const PartEntry& entry = entry_of(source);
    if (!plan.index.entries.empty() && identity_of(plan.index.entries.back()) == identity_of(entry)) {
      ++plan.repeated;
      continue;
    }
    plan.index.entries.push_back(entry);
    plan.sources.push_back(source);
  }
  return plan;
}

Status write_merge(const MergePlan& plan, const std::vector<MergeInput>& inputs,
                   const std::function<void(std::string_view)>& write) {
  write(part_head(plan.index));
  for (const MergePlan::Source& source : plan.sources) {
    const Result<std::string> stored = inputs[source.input].read(source.entry);
    if (!stored) return Error{stored.error()};
    write(*stored);
  }
  return Done{};
}

}  // namespace whyrss
