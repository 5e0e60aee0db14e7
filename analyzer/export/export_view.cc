#include "export/export_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include "report/view/blame.h"
#include "report/view/series.h"
#include "report/wording/format.h"
#include "support/text.h"

namespace whyrss {
namespace {

CauseMoment moment_of(const Account& account) {
  CauseMoment moment{
      .time_s = account.time_s, .rss_bytes = account.rss_bytes, .is_estimate = account.estimated_from_s.has_value()};
  for (std::size_t i = 0; i < kCauseCount; ++i) moment.bytes.at(i) = account.slices.sum_of(static_cast<Cause>(i)).bytes;
  return moment;
}

void append(std::vector<CauseMoment>& moments, const Account& account) {
  const auto millisecond = [](double time_s) { return std::llround(time_s * 1000); };
  if (!moments.empty() && millisecond(moments.back().time_s) == millisecond(account.time_s)) moments.pop_back();
  moments.push_back(moment_of(account));
}

}  // namespace

std::string slug_of(Cause cause) { return std::string(info(cause).slug); }

std::vector<ExportRow> export_rows(const View& view) {
  std::vector<ExportRow> rows;
  for (const ProcessView& process : view.processes)
    for (const CauseView& cause : process.causes)
      for (const SiteView& site : cause.sites) rows.push_back({&process, &cause, &site});
  return rows;
}

std::vector<Cause> causes_of(const std::vector<ExportRow>& rows) {
  std::array<bool, kCauseCount> is_there{};
  for (const ExportRow& row : rows) is_there.at(static_cast<std::size_t>(row.cause->cause)) = true;
  std::vector<Cause> causes;
  for (const CauseInfo& known : kCauses)
    if (is_there.at(static_cast<std::size_t>(known.cause))) causes.push_back(known.cause);
  return causes;
}

ExportFrame export_frame(const StackTable& stacks, FrameId id) {
  const Frame& frame = stacks[id];
  ExportFrame shown{printable(frame.function), printable(frame.file), std::max(frame.line, 0)};
  if (!shown.function.empty()) return shown;
  const std::string module = base_name(stacks[frame.module].path);
  if (!module.empty())
    shown.function = printable(fmt::format("{}+{:#x}", module, frame.address));
  else
    shown.function = shown.file.empty() ? "?" : base_name(shown.file);
  return shown;
}

std::string command_text(const ProcessAccount& process) {
  return printable(process.command.empty() ? process.exe : join(process.command, " "));
}

std::string process_name(const ProcessAccount& process) { return program_name(process.command, process.exe); }

std::string process_label(const ProcessAccount& process) {
  return fmt::format("{} (pid {})", process_name(process), process.pid);
}

std::vector<ExportFrame> plain_stack(const StackTable& stacks, const ExportRow& row) {
  std::vector<ExportFrame> frames;
  const std::vector<FrameId>& ids = stacks[row.site->stack];
  for (auto id = ids.rbegin(); id != ids.rend(); ++id) frames.push_back(export_frame(stacks, *id));
  if (frames.empty()) frames.push_back({.function = std::string(kNoLine), .file = {}});
  return frames;
}

std::vector<ExportFrame> labelled_stack(const StackTable& stacks, const ExportRow& row) {
  std::vector<ExportFrame> frames{{.function = process_label(*row.process->account), .file = {}},
                                  {.function = slug_of(row.cause->cause), .file = {}}};
  for (ExportFrame& frame : plain_stack(stacks, row)) frames.push_back(std::move(frame));
  if (!row.site->mapping().empty()) frames.push_back({.function = printable(row.site->mapping()), .file = {}});
  return frames;
}

std::vector<CauseMoment> cause_moments(const ProcessView& process) {
  std::vector<CauseMoment> moments;
  const ProcessAccount& account = *process.account;
  if (const Account* first = last_at(account.accounts, process.interval.from_s)) append(moments, *first);
  for (const Account& walk : account.accounts)
    if (walk.time_s > process.interval.from_s && walk.time_s <= process.interval.to_s) append(moments, walk);
  return moments;
}

std::int64_t wall_ns(const std::string& time) {
  std::tm started{};
  const char* rest = strptime(time.c_str(), "%Y-%m-%dT%H:%M:%S", &started);
  if (rest == nullptr) return 0;
  constexpr std::int64_t kSecond = 1'000'000'000;
  std::int64_t fraction_ns = 0;
  if (*rest == '.') {
    std::int64_t unit = kSecond / 10;
    for (const char* digit = rest + 1; *digit >= '0' && *digit <= '9'; ++digit, unit /= 10)
      fraction_ns += unit * (*digit - '0');
  }
  return static_cast<std::int64_t>(timegm(&started)) * kSecond + fraction_ns;
}

std::int64_t started_ns(const RecordingInfo& info) { return wall_ns(info.started); }

std::vector<std::string> Shrunk::remarks() const {
  if (stacks_ == 0) return {};
  return {fmt::format("left out: {} stack{} that shrank, {} ({} bytes) in all: this format has no negative sizes",
                      stacks_, stacks_ == 1 ? "" : "s", growth_text(bytes_), bytes_)};
}

std::vector<std::string> missing_remarks(const View& view) {
  std::vector<std::string> remarks;
  const auto unseen = std::ranges::count_if(view.processes, [](const ProcessView& one) { return !one.walked; });
  if (view.processes.empty())
    remarks.emplace_back("the recording has no process: the export is empty");
  else if (unseen == std::ssize(view.processes))
    remarks.emplace_back("no process was walked: the export is empty");
  else if (unseen > 0)
    remarks.push_back(
        fmt::format("of {} of {} processes nothing is in it: they were in no snapshot", unseen, view.processes.size()));
  const RecordingInfo& info = view.recording->info;
  if (!info.complete) remarks.push_back(fmt::format("the recording is incomplete: {}", printable(info.incomplete_why)));
  if (info.lost_events > 0)
    remarks.push_back(fmt::format("{} events were lost: lines may be missing", info.lost_events));
  return remarks;
}

}  // namespace whyrss
