#include "cli/diff_command.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/complain.h"
#include "cli/exit_status.h"
#include "cli/fail_if.h"
#include "cli/job_diff_command.h"
#include "cli/output_file.h"
#include "cli/terminal.h"
#include "job/part_file.h"
#include "report/diff/diff_formats.h"
#include "report/view/build_view.h"
#include "report/view/interval.h"
#include "report/wording/format.h"
#include "support/text.h"

namespace whyrss {
namespace {

constexpr std::size_t kTextLines = 10, kJsonLines = 1000;

// A recording with the view that is compared, which points into it.
struct Loaded {
  RecordingAccount recording;
  View view;
  std::string name, part;
};

int load(const DiffSide& side, Progress& progress, Loaded& loaded) {
  Interval interval;
  const ReportPart part{side.phase, side.phase, side.pid, side.suffix};
  const int status = read_part(side.recording, part, progress, loaded.recording, interval);
  if (status != kDone) return status;
  loaded.view = build_view(loaded.recording, interval, side.pid);
  const RecordingInfo& info = loaded.recording.info;
  std::vector<std::string> parts;
  if (!side.phase.empty()) parts.push_back("phase " + side.phase);
  if (const std::size_t count = count_phases(loaded.recording, side.phase); count > 1)
    parts.back() +=
        fmt::format(" (from the first of {0} to the last; {1}#1 to {1}#{0} are one each)", count, side.phase);
  if (side.pid) parts.push_back(fmt::format("pid {}", *side.pid));
  loaded.part = join(parts, ", ");
  loaded.name = side.recording + (parts.empty() ? "" : ", " + loaded.part);
  if (side.pid && !loaded.view.processes.empty()) {
    const ProcessAccount& process = *loaded.view.processes.front().account;
    interval.from_s = std::max(interval.from_s, process.born_s);
    interval.to_s = std::min(interval.to_s, end_of_work(loaded.recording, process));
  }
  loaded.name += fmt::format(": {}, over {}", shortened(join(info.command, " "), 60),
                             seconds_text(std::max(interval.to_s - interval.from_s, 0.0)));
  return kDone;
}

std::string rendered(const DiffOptions& options, const Diff& diff, const Loaded& a, const Loaded& b) {
  const bool is_data = options.format == "json" || options.format == "html";
  const DiffStyle style{.top = options.top.value_or(is_data ? kJsonLines : kTextLines),
                        .name_a = a.name,
                        .name_b = b.name,
                        .part_a = a.part,
                        .part_b = b.part,
                        .columns = output_columns(options.output)};
  if (options.format == "html") return render_diff_html(diff, style);
  if (is_data) return render_diff_json(diff, style);
  return options.format == "markdown" ? render_diff_markdown(diff, style) : render_diff_text(diff, style);
}

}  // namespace

int run_diff(const DiffOptions& options) {
  if (may_be_part(options.a.recording) || may_be_part(options.b.recording)) return run_job_diff(options);
  const Result<std::optional<DiffFailIf>> condition = optional_diff_fail_if(options.fail_if);
  if (!condition) return complain(condition.error(), kUsage);
  Progress progress;
  Loaded a, b;
  if (const int status = load(options.a, progress, a); status != kDone) return status;
  if (const int status = load(options.b, progress, b); status != kDone) return status;
  progress.at("comparing");
  const Diff diff = build_diff(a.view, b.view, options.value.value_or(SiteFigure::growth));
  const std::string text = rendered(options, diff, a, b);
  progress.clear();
  const int written = write_output(text, options.output, "the difference");
  if (written != kDone || !*condition) return written;
  return end_by(**condition, options.fail_if, figure_of(**condition, diff));
}

}  // namespace whyrss
