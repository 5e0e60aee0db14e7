#include "report/verdicts/next_steps.h"

namespace whyrss {
namespace {

constexpr NextSteps kAtACommandLine{
    .again = "Record it again.",
    .longer = "Record a longer run; `whyrss doctor` says what this machine allows.",
    .snapshot = "Call whyrss.snapshot() in the program where it matters, or record with a higher --overhead.",
    .snapshot_at_peak =
        "record with more snapshots (`record --overhead 10`), or call whyrss.snapshot() in the program there.",
    .object_lines =
        "Without `--python-objects off`, `record` samples the objects and shows their lines; `--mode exact` shows that "
        "of each.",
    .each_object = "--mode exact follows each object.",
    .prove = " To see it: `whyrss prove` has the kernel take these pages.",
    .other_allocators = "; `whyrss compare-allocators` shows what others keep",
};

constexpr NextSteps kInANotebook{
    .again = "Run the cell again.",
    .longer = "Let the cell run longer.",
    .snapshot = "Call whyrss.snapshot() in the cell where it matters.",
    .snapshot_at_peak = "call whyrss.snapshot() in the cell there.",
    .object_lines =
        "A kernel of `%run -m whyrss_ipython install --mode exact` shows the line of each object (and is slower).",
    .each_object = "a kernel of `%run -m whyrss_ipython install --mode exact` follows each object (and is slower).",
    .prove = "",
    .other_allocators = "",
};

}  // namespace

const NextSteps& next_steps(const View& view) { return view.in_notebook ? kInANotebook : kAtACommandLine; }

}  // namespace whyrss
