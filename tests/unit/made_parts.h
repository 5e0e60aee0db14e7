// Small recordings of a job as a part holds them, and parts of them in memory.
#pragma once

#include <fmt/format.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "job/fold.h"
#include "job/merge.h"
#include "job/part_file.h"

namespace whyrss::made {

inline constexpr std::int64_t kMiB = 1 << 20;

// A process whose heap_live has all of `bytes` at one line, beside a file of 32 MiB.
inline ReducedProcess process(std::int64_t rank, std::int64_t bytes) {
  ReducedProcess process{.pid = 100 + rank, .parent = 1, .name = "train.py", .traced = true, .walked = true};
  process.rank = rank;
  process.rss_last = process.rss_peak = bytes + 32 * kMiB;
  process.causes = {{.cause = Cause::file_cache, .last = 32 * kMiB, .peak = 32 * kMiB, .at_peak = 32 * kMiB},
                    {.cause = Cause::heap_live, .last = bytes, .peak = bytes, .at_peak = bytes}};
  process.lines = {{Cause::heap_live, 0, bytes, bytes, bytes}, {Cause::file_cache, 1, 32 * kMiB, 32 * kMiB, 32 * kMiB}};
  MemoryMoment moment{.time_ms = 500};
  moment.bytes[static_cast<std::size_t>(Cause::heap_live)] = bytes;
  moment.bytes[static_cast<std::size_t>(Cause::file_cache)] = 32 * kMiB;
  process.moments = {moment};
  process.rss_by_time.add(process.rss_peak, 1000);
  process.verdicts = {{"heap-growth", Severity::info, bytes, "it grew"}};
  return process;
}

inline ReducedRecording recording(std::int64_t rank, std::int64_t bytes, const std::string& node = "node1") {
  ReducedRecording recording{.session = fmt::format("{:032x}", rank),
                             .host = node,
                             .boot_id = "boot-of-" + node,
                             .node = node,
                             .job = "77",
                             .version = "0.1.0",
                             .started = "2026-03-01T12:00:00.000000Z",
                             .started_ns = 1'000'000'000,
                             .duration_ms = 2000,
                             .mode = "sampled",
                             .complete = true,
                             .memory_total = 1024 * kMiB};
  recording.lines = {{"cache.py:11 in load", "/home/u/cache.py", ""},
                     {"cache.py:5 in read", "/home/u/cache.py", "/data/x"}};
  recording.processes = {process(rank, bytes)};
  return recording;
}

// A part of one block, or of what others hold.
inline MergeInput part(const ReducedRecording& recording, const std::string& name = "a.part") {
  const auto block = std::make_shared<const PartBlock>(make_block(recording));
  MergeInput input{.name = name, .index = {}, .read = [block](std::size_t) { return block->stored; }};
  input.index.entries.push_back(block->entry);
  return input;
}

inline MergeInput merged(const std::vector<MergeInput>& inputs) {
  const Result<MergePlan> plan = plan_merge(inputs, false);
  require(plan.ok(), "parts of one job");
  auto blocks = std::make_shared<std::vector<std::string>>();
  for (const MergePlan::Source& source : plan->sources) blocks->push_back(*inputs[source.input].read(source.entry));
  return {.name = "merged", .index = plan->index, .read = [blocks](std::size_t entry) { return blocks->at(entry); }};
}

inline std::string bytes_of(const MergeInput& input) {
  std::string bytes;
  const Result<MergePlan> plan = plan_merge({input}, false);
  require(write_merge(*plan, {input}, [&](std::string_view piece) { bytes += piece; }).ok(), "blocks in memory");
  return bytes;
}

inline JobView folded(const MergeInput& input, std::size_t details = 0) {
  const Result<JobView> view = fold_job(
      "job", input.index,
      [&](std::size_t entry) { return read_stored(*input.read(entry), input.index.entries[entry]); }, details);
  require(view.ok(), "a whole part");
  return *view;
}

}  // namespace whyrss::made
