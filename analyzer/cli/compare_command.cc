#include "cli/compare_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "cli/comparing.h"
#include "cli/complain.h"
#include "cli/exit_status.h"
#include "cli/output_file.h"
#include "cli/record_signals.h"
#include "cli/terminal.h"
#include "collect/read/target_kind.h"
#include "report/compare/compare_formats.h"
#include "report/wording/format.h"
#include "support/file.h"

namespace whyrss {
namespace {

std::string rendered(const Comparison& comparison, const CompareOptions& options) {
  if (options.format == "json") return render_compare_json(comparison);
  if (options.format == "markdown") return render_compare_markdown(comparison);
  return render_compare_text(comparison, output_columns(options.output));
}

bool was_measured(const Comparison& comparison) {
  return std::any_of(comparison.contestants.begin(), comparison.contestants.end(),
                     [](const Contestant& who) { return !who.bare.empty() && !who.recorded.empty(); });
}

}  // namespace

int run_compare(const CompareOptions& options) {
  const std::string& command = options.command.front();
  const TargetProgram program = inspect_target(command);
  if (program.kind == TargetKind::not_found) return complain("cannot run " + command + ": not found", kNotFound);
  if (program.kind == TargetKind::not_executable)
    return complain("cannot run " + command + ": not executable", kNotExecutable);
  if (!options.input.empty() && access(options.input.c_str(), R_OK) != 0)
    return complain(system_error("--input: cannot read", options.input).message, kFailed);
  int ended_by = 0;
  Comparison comparison;
  {
    const Result<Workplace> workplace = Workplace::make(options.keep);
    if (!workplace) return complain(workplace.error(), kFailed);
    Comparing comparing(options, *workplace);
    ended_by = comparing.run();
    comparison = comparing.take();
  }  // the recordings are gone
  if (ended_by != 0) return die_by(ended_by);
  if (program.kind != TargetKind::traceable)
    comparison.notes.push_back(fmt::format("{} {}: another allocator cannot be preloaded, nor its heap be read.",
                                           program.path, describe(program.kind)));
  const int written = write_output(rendered(comparison, options), options.output, "the comparison");
  if (written != kDone || was_measured(comparison)) return written;
  return complain("nothing was measured" + (comparison.notes.empty() ? "" : ": " + comparison.notes.front()), kFailed);
}

}  // namespace whyrss
