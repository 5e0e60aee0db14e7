#include "cli/reduce_command.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "cli/complain.h"
#include "cli/exit_status.h"
#include "cli/output_file.h"
#include "cli/progress.h"
#include "cli/report_command.h"
#include "job/expected.h"
#include "job/merge.h"
#include "job/part_file.h"
#include "job/reduce.h"
#include "report/verdicts/verdict.h"
#include "report/view/build_view.h"

namespace whyrss {
namespace {

Result<MergeInput> reduced(const std::string& path, Progress& progress) {
  Result<RecordingAccount> recording = load_with_names(path, progress);
  if (!recording) return Error{recording.error()};
  const View view = build_view(*recording, whole_life(*recording));
  const auto block = std::make_shared<const PartBlock>(make_block(reduce(view, find_verdicts(view))));
  MergeInput input{.name = path, .index = {}, .read = [block](std::size_t) { return block->stored; }};
  input.index.entries.push_back(block->entry);
  // A list that cannot be expanded is no reason to lose the rest.
  if (std::string nodes = first_place(*recording, &JobPlace::node_list); !nodes.empty() && check_node_list(nodes))
    input.index.node_lists.push_back(std::move(nodes));
  return input;
}

Result<MergeInput> opened(const std::string& path) {
  Result<PartFile> opened = PartFile::open(path);
  if (!opened) return Error{opened.error()};
  const auto part = std::make_shared<const PartFile>(std::move(*opened));
  return MergeInput{
      .name = path, .index = part->index(), .read = [part](std::size_t entry) { return part->read_block(entry); }};
}

// Whether each block is what its part says; what is not is not found only when half of the output is written.
Status check_blocks(const MergeInput& input) {
  for (std::size_t entry = 0; entry < input.index.entries.size(); ++entry)
    if (const auto block = input.read(entry); !block) return Error{block.error()};
  return Done{};
}

std::string counted(std::size_t count, const char* word) {
  return fmt::format("{} {}{}", count, word, count == 1 ? "" : "s");
}

int write_part(const MergePlan& plan, const std::vector<MergeInput>& inputs, const std::string& output,
               const char* verb) {
  const int written =
      write_checked_output([&](const TextSink& write) { return write_merge(plan, inputs, write); }, output, "the part");
  if (written != kDone) return written;
  if (plan.repeated > 0)
    complain(fmt::format("{}: {} stood in several parts: counted once", verb, counted(plan.repeated, "recording")));
  return kDone;
}

MergeInput expected_input(const std::string& nodes) {
  MergeInput input{.name = "--nodes", .index = {}, .read = [](std::size_t) { return std::string(); }};
  if (!nodes.empty()) input.index.node_lists.push_back(nodes);
  return input;
}

}  // namespace

int run_reduce(const ReduceOptions& options) {
  Progress progress;
  std::vector<MergeInput> inputs{expected_input(options.nodes)};
  for (const std::string& path : options.recordings) {
    Result<MergeInput> input = reduced(path, progress);
    progress.clear();
    if (!input) return complain(fmt::format("reduce: {}", input.error()), kFailed);
    inputs.push_back(std::move(*input));
  }
  // What a node ran, of whatever jobs: their merge is where it matters.
  const Result<MergePlan> plan = plan_merge(inputs, true);
  return plan ? write_part(*plan, inputs, options.output, "reduce") : complain(plan.error(), kFailed);
}

int run_merge(const MergeOptions& options) {
  Progress progress;
  std::vector<MergeInput> inputs{expected_input(options.nodes)};
  bool failed = false;
  for (std::size_t i = 0; i < options.inputs.size(); ++i) {
    const std::string& path = options.inputs[i];
    progress.at("reading parts", static_cast<double>(i) / static_cast<double>(options.inputs.size()));
    Result<MergeInput> input = may_be_part(path) ? opened(path) : reduced(path, progress);
    if (input && options.skip_damaged)
      if (const Status whole = check_blocks(*input); !whole) input = Error{whole.error()};
    if (input) {
      inputs.push_back(std::move(*input));
      continue;
    }
    progress.clear();
    complain(fmt::format("merge: {}{}", input.error(), options.skip_damaged ? ": left out" : ""));
    failed = failed || !options.skip_damaged;
  }
  progress.clear();
  if (failed) return complain("merge: nothing was written; --skip-damaged leaves out what cannot be read", kFailed);
  if (inputs.size() == 1) return complain("merge: no part is left", kFailed);
  const Result<MergePlan> plan = plan_merge(inputs, options.several_jobs);
  if (!plan) return complain(fmt::format("merge: {}", plan.error()), kFailed);
  const int written = write_part(*plan, inputs, options.output, "merge");
  if (const std::string missing = missing_text(expected_nodes(plan->index)); written == kDone && !missing.empty())
    complain(fmt::format("merge: {}", missing));
  return written;
}

}  // namespace whyrss
