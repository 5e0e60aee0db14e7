#include "cli/export_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include "cli/complain.h"
#include "cli/exit_status.h"
#include "cli/output_file.h"
#include "cli/progress.h"
#include "export/export_format.h"
#include "report/view/build_view.h"

namespace whyrss {

int run_export(const ExportOptions& options) {
  const ExportFormat* format = find_export_format(options.format);
  if (format == nullptr) return complain(fmt::format("export: no format named {}", options.format), kUsage);
  const bool to_stdout = options.output.empty() || options.output == "-";
  if (format->is_binary && to_stdout && isatty(STDOUT_FILENO) == 1)
    return complain(fmt::format("export: {} is not for a terminal: add -o FILE", format->name), kUsage);
  Progress progress;
  RecordingAccount recording;
  Interval interval;
  if (const int status = read_part(options.recording, options.part, progress, recording, interval); status != kDone)
    return status;
  progress.at("writing the export");
  const View view = build_view(recording, interval, options.part.pid);
  std::vector<std::string> remarks = missing_remarks(view);
  const int written = write_output(
      [&](const TextSink& write) {
        for (std::string& left_out : format->write({&view, options.value}, write))
          remarks.push_back(std::move(left_out));
      },
      options.output, "the export");
  progress.clear();
  if (written != kDone) return written;
  for (const std::string& remark : remarks) complain("export: " + remark);
  return kDone;
}

}  // namespace whyrss
