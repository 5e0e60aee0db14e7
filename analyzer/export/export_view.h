// What exports write of a report's view: one row per process, cause, mapping and stack, names as other tools may show
// them, and the causes of each process over time. Figures are the view's own, and so the ones of the JSON report.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "report/view/view.h"

namespace whyrss {

using ExportValue = SiteFigure;

// One site of one process; all three outlive it.
struct ExportRow {
  const ProcessView* process = nullptr;
  const CauseView* cause = nullptr;
  const SiteView* site = nullptr;
  [[nodiscard]] std::int64_t value(ExportValue which) const { return figure_of(*site, which); }
};
// The slug of a cause, as JSON has it.
std::string slug_of(Cause cause);

// In the view's order.
std::vector<ExportRow> export_rows(const View& view);

// The causes of any row, in the order of kCauses.
std::vector<Cause> causes_of(const std::vector<ExportRow>& rows);

// A frame as a tool shows it. Control bytes and what is no UTF-8 are '?' in all texts, as in the text report.
struct ExportFrame {
  std::string function;  // never empty: "libc.so.6+0x1a2b" where a native frame has no name
  std::string file;      // source file, "" if not known
  int line = 0;
};
ExportFrame export_frame(const StackTable& stacks, FrameId id);

// What stands in place of the stack where none was recorded.
inline constexpr std::string_view kNoLine = "[no line known]";

// "train.py": the command's own name, of `python3 train.py` the script.
std::string process_name(const ProcessAccount& process);
// "train.py (pid 4711)"
std::string process_label(const ProcessAccount& process);
std::string command_text(const ProcessAccount& process);

// "process; cause; calls, outermost first; mapping": what tools show that know of nothing but stacks. The innermost
// frame, the mapping's name, is left out where the mapping has none.
std::vector<ExportFrame> labelled_stack(const StackTable& stacks, const ExportRow& row);
// Without the process and the cause; never empty.
std::vector<ExportFrame> plain_stack(const StackTable& stacks, const ExportRow& row);

// The state of one process at one of its walks.
struct CauseMoment {
  double time_s = 0;
  std::int64_t rss_bytes = 0;
  bool is_estimate = false;
  std::array<std::int64_t, kCauseCount> bytes{};  // they sum to rss_bytes
};
// In its interval, beginning with the state in force then; of moments within the same millisecond, which is as fine as
// time series databases go, the last. Its last moment is `last` of the JSON report.
std::vector<CauseMoment> cause_moments(const ProcessView& process);

// Of a time as RFC 3339 writes it, in UTC: nanoseconds since 1970; 0 where it is none.
std::int64_t wall_ns(const std::string& time);
// Of the recording's begin.
std::int64_t started_ns(const RecordingInfo& info);

// What formats that show widths have to leave out.
class Shrunk {
 public:
  void add(std::int64_t bytes) {
    ++stacks_;
    bytes_ += bytes;
  }
  // For stderr: nothing, or one line.
  [[nodiscard]] std::vector<std::string> remarks() const;

 private:
  std::size_t stacks_ = 0;
  std::int64_t bytes_ = 0;
};

// What a reader may look for, and is not in the rows; one line each.
std::vector<std::string> missing_remarks(const View& view);

}  // namespace whyrss
