// speedscope's own JSON: one profile per cause and figure, each by process and stack.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <nlohmann/json.hpp>

#include "export/export_format.h"
#include "report/wording/format.h"
#include "support/version.h"

namespace whyrss {
namespace {

using Json = nlohmann::ordered_json;

std::string json_text(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

class Frames {
 public:
  explicit Frames(const StackTable& stacks) : stacks_(stacks) {}

  // The numbers of a row's frames, as a list in JSON.
  std::string list_of(const ExportRow& row) {
    std::vector<std::size_t> numbers;
    for (const ExportFrame& frame : labelled_stack(stacks_, row)) numbers.push_back(number_of(frame));
    return fmt::format("[{}]", fmt::join(numbers, ","));
  }
  [[nodiscard]] const Json& all() const { return frames_; }

 private:
  std::size_t number_of(const ExportFrame& frame) {
    const auto [known, is_new] = numbers_.try_emplace({frame.function, frame.file, frame.line}, frames_.size());
    if (!is_new) return known->second;
    Json json{{"name", frame.function}};
    if (!frame.file.empty()) json["file"] = frame.file;
    if (frame.line > 0) json["line"] = frame.line;
    frames_.push_back(std::move(json));
    return known->second;
  }

  const StackTable& stacks_;
  std::map<std::tuple<std::string, std::string, int>, std::size_t> numbers_;
  Json frames_ = Json::array();
};

// A row and the list of its frames.
struct Sample {
  const ExportRow* row = nullptr;
  std::string frames;
};

// One profile as JSON; "" where nothing is in it. speedscope draws widths, so what shrank has no place there.
std::string profile_text(const std::string& name, ExportValue value, const std::vector<const Sample*>& samples,
                         Shrunk& shrunk) {
  std::string stacks, weights;
  std::int64_t sum = 0;
  for (const Sample* sample : samples) {
    const std::int64_t bytes = sample->row->value(value);
    if (bytes < 0) shrunk.add(bytes);
    if (bytes <= 0) continue;
    const std::string_view separator = stacks.empty() ? "" : ",";
    stacks.append(separator).append(sample->frames);
    weights.append(separator).append(fmt::format("{}", bytes));
    sum += bytes;
  }
  if (stacks.empty() && !name.starts_with("rss")) return "";
  return fmt::format(
      R"({{"type":"sampled","name":"{}","unit":"bytes","startValue":0,"endValue":{},"samples":[{}],"weights":[{}]}})",
      name, sum, stacks, weights);
}

}  // namespace

std::vector<std::string> write_speedscope(const ExportRequest& request, const ByteSink& write) {
  const View& view = *request.view;
  const std::vector<ExportRow> rows = export_rows(view);
  Frames frames(view.recording->stacks);
  std::vector<Sample> samples;
  for (const ExportRow& row : rows) samples.push_back({&row, frames.list_of(row)});
  std::vector<const Sample*> all;
  std::map<Cause, std::vector<const Sample*>> by_cause;
  for (const Sample& sample : samples) {
    all.push_back(&sample);
    by_cause[sample.row->cause->cause].push_back(&sample);
  }
  Json header{{"$schema", "https://www.speedscope.app/file-format-schema.json"},
              {"exporter", fmt::format("whyrss {}", kVersion)},
              {"name", printable(view.recording->info.path)},
              {"activeProfileIndex", 0}};
  std::string text = json_text(header);
  text.back() = ',';
  write(text + "\n\"profiles\": [");
  Shrunk shrunk;
  std::string_view separator = "\n";
  const auto put = [&](const std::string& name, ExportValue value, const std::vector<const Sample*>& of_it) {
    const std::string profile = profile_text(name, value, of_it, shrunk);
    if (profile.empty()) return;
    write(separator);
    write(profile);
    separator = ",\n";
  };
  put("rss", ExportValue::resident, all);
  for (const auto& [cause, of_it] : by_cause) put(slug_of(cause), ExportValue::resident, of_it);
  for (const auto& [cause, of_it] : by_cause) put(slug_of(cause) + "_growth", ExportValue::growth, of_it);
  for (const auto& [cause, of_it] : by_cause) put(slug_of(cause) + "_at_peak", ExportValue::at_peak, of_it);
  write("\n],\n\"shared\": " + json_text({{"frames", frames.all()}}) + "}\n");
  return shrunk.remarks();
}

}  // namespace whyrss
