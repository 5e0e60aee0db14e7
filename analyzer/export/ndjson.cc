// One JSON object a line and site, compressed by zstd: for SQL engines that join many recordings.
#include <zstd.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "export/export_format.h"
#include "report/view/blame.h"
#include "support/result.h"

namespace whyrss {
namespace {

using Json = nlohmann::ordered_json;

// A stream of one zstd frame.
class ZstdSink {
 public:
  explicit ZstdSink(const ByteSink& write) : write_(write), stream_(ZSTD_createCStream(), ZSTD_freeCStream) {
    require(stream_ != nullptr, "no memory for a zstd stream");
  }
  void add(std::string_view text) { compress(text, ZSTD_e_continue); }
  void end() { compress({}, ZSTD_e_end); }

 private:
  void compress(std::string_view text, ZSTD_EndDirective how) {
    ZSTD_inBuffer input{text.data(), text.size(), 0};
    while (true) {
      ZSTD_outBuffer output{buffer_.data(), buffer_.size(), 0};
      const std::size_t left = ZSTD_compressStream2(stream_.get(), &output, &input, how);
      require(ZSTD_isError(left) == 0, "zstd cannot compress");
      if (output.pos > 0) write_({buffer_.data(), output.pos});
      if (how == ZSTD_e_end ? left == 0 : input.pos == input.size) return;
    }
  }

  const ByteSink& write_;
  std::unique_ptr<ZSTD_CStream, std::size_t (*)(ZSTD_CStream*)> stream_;
  std::string buffer_ = std::string(ZSTD_CStreamOutSize(), '\0');
};

Json stack_json(const StackTable& stacks, StackId id) {
  Json frames = Json::array();
  for (const FrameId frame_id : stacks[id]) {
    const Frame& frame = stacks[frame_id];
    frames.push_back({{"function", frame.function.empty() ? export_frame(stacks, frame_id).function : frame.function},
                      {"file", frame.file},
                      {"line", frame.line}});
  }
  return frames;
}

std::string row_line(const RecordingAccount& recording, const ExportRow& row) {
  const ProcessAccount& process = *row.process->account;
  const Frame* blamed = blamed_frame(recording.stacks, row.site->stack);
  const Json json{{"host", recording.info.host},
                  {"recording", recording.info.path},
                  {"started", recording.info.started},
                  {"pid", process.pid},
                  {"born_s", process.born_s},
                  {"command", process.command},
                  {"cause", info(row.cause->cause).slug},
                  {"mapping", row.site->mapping()},
                  {"function", blamed == nullptr ? "" : blamed->function},
                  {"file", blamed == nullptr ? "" : blamed->file},
                  {"line", blamed == nullptr ? 0 : blamed->line},
                  {"stack", stack_json(recording.stacks, row.site->stack)},
                  {"resident", row.site->resident},
                  {"growth", row.site->growth},
                  {"at_peak", row.site->at_peak},
                  {"standard_error", std::llround(std::sqrt(row.site->variance))}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace

std::vector<std::string> write_ndjson(const ExportRequest& request, const ByteSink& write) {
  ZstdSink sink(write);
  for (const ExportRow& row : export_rows(*request.view)) sink.add(row_line(*request.view->recording, row));
  sink.end();
  return {};
}

}  // namespace whyrss
