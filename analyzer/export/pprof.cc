// profile.proto of pprof (github.com/google/pprof, proto/profile.proto), compressed by gzip. One sample per site:
// three values for RSS and for each cause (at the interval's end, growth, at the peak), and the process as labels.
#include <fmt/format.h>

#include <array>
#include <map>
#include <protozero/pbf_builder.hpp>
#include <unordered_map>
#include <utility>

#include "export/export_format.h"
#include "report/render/gzip.h"
#include "report/wording/format.h"
#include "support/result.h"
#include "support/text.h"
#include "support/version.h"

namespace whyrss {
namespace {

enum class ProfileField : protozero::pbf_tag_type {
  sample_type = 1,
  sample = 2,
  mapping = 3,
  location = 4,
  function = 5,
  string_table = 6,
  time_nanos = 9,
  duration_nanos = 10,
  period_type = 11,
  period = 12,
  comment = 13,
  default_sample_type = 14,
};
enum class ValueTypeField : protozero::pbf_tag_type { type = 1, unit = 2 };
enum class SampleField : protozero::pbf_tag_type { location_id = 1, value = 2, label = 3 };
enum class LabelField : protozero::pbf_tag_type { key = 1, str = 2 };
enum class MappingField : protozero::pbf_tag_type {
  id = 1,
  filename = 5,
  build_id = 6,
  has_functions = 7,
  has_filenames = 8,
  has_line_numbers = 9,
  has_inline_frames = 10,
};
enum class LocationField : protozero::pbf_tag_type { id = 1, mapping_id = 2, address = 3, line = 4 };
enum class LineField : protozero::pbf_tag_type { function_id = 1, line = 2 };
enum class FunctionField : protozero::pbf_tag_type { id = 1, name = 2, system_name = 3, filename = 4 };

template <typename Field>
using Builder = protozero::pbf_builder<Field>;
using Strings = std::map<std::string, std::int64_t>;

constexpr int kFastest = 1;  // of gzip

constexpr std::array<std::pair<ExportValue, std::string_view>, 3> kFigures{
    {{ExportValue::resident, ""}, {ExportValue::growth, "_growth"}, {ExportValue::at_peak, "_at_peak"}}};

// Tables grow as samples refer to them, and stand in the file once.
class ProfileWriter {
 public:
  explicit ProfileWriter(const View& view) : view_(view), stacks_(view.recording->stacks) { string_id(""); }

  std::string written() {
    const std::vector<ExportRow> rows = export_rows(view_);
    causes_ = causes_of(rows);
    add_sample_types();
    // The first mapping is taken for the program.
    if (!view_.processes.empty()) mapping_id(Module{view_.processes.front().account->exe, ""});
    for (const ExportRow& row : rows) add_sample(row);
    add_header();
    for (const std::string* text : texts_) profile_.add_string(ProfileField::string_table, *text);
    return std::move(bytes_);
  }

 private:
  std::int64_t string_id(const std::string& text) {
    const auto [known, is_new] = strings_.try_emplace(text, static_cast<std::int64_t>(texts_.size()));
    if (is_new) texts_.push_back(&known->first);
    return known->second;
  }

  void add_value_type(ProfileField field, const std::string& type) {
    Builder<ValueTypeField> message(profile_, field);
    message.add_int64(ValueTypeField::type, string_id(type));
    message.add_int64(ValueTypeField::unit, string_id("bytes"));
  }

  void add_sample_types() {
    for (const auto& [figure, suffix] : kFigures)
      add_value_type(ProfileField::sample_type, fmt::format("rss{}", suffix));
    for (const Cause cause : causes_)
      for (const auto& [figure, suffix] : kFigures)
        add_value_type(ProfileField::sample_type, fmt::format("{}{}", info(cause).slug, suffix));
  }

  std::uint64_t mapping_id(const Module& module) {
    if (module.path.empty()) return 0;
    const auto [known, is_new] = mappings_.try_emplace(module, mappings_.size() + 1);
    if (!is_new) return known->second;
    std::string build_id;
    for (const char byte : module.build_id) build_id += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    Builder<MappingField> message(profile_, ProfileField::mapping);
    message.add_uint64(MappingField::id, known->second);
    message.add_int64(MappingField::filename, string_id(printable(module.path)));
    message.add_int64(MappingField::build_id, string_id(build_id));
    // Else pprof looks for the file, and names functions anew.
    for (const auto field : {MappingField::has_functions, MappingField::has_filenames, MappingField::has_line_numbers,
                             MappingField::has_inline_frames})
      message.add_bool(field, true);
    return known->second;
  }

  std::uint64_t function_id(const ExportFrame& frame) {
    const auto [known, is_new] = functions_.try_emplace({frame.function, frame.file}, functions_.size() + 1);
    if (!is_new) return known->second;
    Builder<FunctionField> message(profile_, ProfileField::function);
    message.add_uint64(FunctionField::id, known->second);
    message.add_int64(FunctionField::name, string_id(frame.function));
    message.add_int64(FunctionField::system_name, string_id(frame.function));
    message.add_int64(FunctionField::filename, string_id(frame.file));
    return known->second;
  }

  void add_location(std::uint64_t id, const ExportFrame& frame, std::uint64_t mapping, std::uint64_t address) {
    const std::uint64_t function = function_id(frame);
    Builder<LocationField> location(profile_, ProfileField::location);
    location.add_uint64(LocationField::id, id);
    if (mapping != 0) location.add_uint64(LocationField::mapping_id, mapping);
    if (address != 0) location.add_uint64(LocationField::address, address);
    Builder<LineField> line(location, LocationField::line);
    line.add_uint64(LineField::function_id, function);
    line.add_int64(LineField::line, frame.line);
  }

  std::uint64_t location_id(FrameId id) {
    const auto [known, is_new] = locations_.try_emplace(id, next_location_);
    if (!is_new) return known->second;
    ++next_location_;
    const Frame& frame = stacks_[id];
    add_location(known->second, export_frame(stacks_, id), mapping_id(stacks_[frame.module]), frame.address);
    return known->second;
  }

  // Where no stack was recorded: the mapping's name in place of a function's.
  std::uint64_t location_id(const std::string& mapping) {
    const std::string name = mapping.empty() ? std::string(kNoLine) : printable(mapping);
    const auto [known, is_new] = named_locations_.try_emplace(name, next_location_);
    if (!is_new) return known->second;
    ++next_location_;
    add_location(known->second, {.function = name, .file = {}}, 0, 0);
    return known->second;
  }

  void add_label(Builder<SampleField>& sample, const char* key, const std::string& value) {
    if (value.empty()) return;
    Builder<LabelField> label(sample, SampleField::label);
    label.add_int64(LabelField::key, string_id(key));
    label.add_int64(LabelField::str, string_id(value));
  }

  // Innermost first, as our stacks are.
  std::vector<std::uint64_t> locations_of(const SiteView& site) {
    std::vector<std::uint64_t> ids;
    for (const FrameId frame : stacks_[site.stack]) ids.push_back(location_id(frame));
    if (ids.empty()) ids.push_back(location_id(site.mapping()));
    return ids;
  }

  void add_sample(const ExportRow& row) {
    std::vector<std::int64_t> values;
    for (const auto& [figure, suffix] : kFigures) values.push_back(row.value(figure));
    for (const Cause cause : causes_)
      for (const auto& [figure, suffix] : kFigures) values.push_back(cause == row.cause->cause ? row.value(figure) : 0);
    const std::vector<std::uint64_t> ids = locations_of(*row.site);  // before the sample: they are written too
    Builder<SampleField> sample(profile_, ProfileField::sample);
    sample.add_packed_uint64(SampleField::location_id, ids.begin(), ids.end());
    sample.add_packed_int64(SampleField::value, values.begin(), values.end());
    const ProcessAccount& process = *row.process->account;
    add_label(sample, "pid", fmt::format("{}", process.pid));
    add_label(sample, "process", process_label(process));
    add_label(sample, "cause", slug_of(row.cause->cause));
    add_label(sample, "mapping", printable(row.site->mapping()));
  }

  void add_header() {
    const RecordingInfo& recorded = view_.recording->info;
    const double length_s = view_.interval.to_s - view_.interval.from_s;
    profile_.add_int64(ProfileField::time_nanos,
                       started_ns(recorded) + static_cast<std::int64_t>(view_.interval.from_s * 1e9));
    profile_.add_int64(ProfileField::duration_nanos, static_cast<std::int64_t>(length_s * 1e9));
    add_value_type(ProfileField::period_type, "rss");
    profile_.add_int64(ProfileField::period, 1);
    for (const std::string& comment :
         {fmt::format("whyrss {}", kVersion), "host: " + printable(recorded.host),
          "command: " + printable(join(recorded.command, " ")), "recording: " + printable(recorded.path)})
      profile_.add_int64(ProfileField::comment, string_id(comment));
    profile_.add_int64(ProfileField::default_sample_type, string_id("rss"));
  }

  const View& view_;
  const StackTable& stacks_;
  std::vector<Cause> causes_;
  std::string bytes_;
  Builder<ProfileField> profile_{bytes_};
  Strings strings_;
  std::vector<const std::string*> texts_;  // by number; keys of strings_
  std::map<Module, std::uint64_t> mappings_;
  std::map<std::pair<std::string, std::string>, std::uint64_t> functions_;
  std::unordered_map<FrameId, std::uint64_t> locations_;
  std::map<std::string, std::uint64_t> named_locations_;
  std::uint64_t next_location_ = 1;
};

}  // namespace

std::vector<std::string> write_pprof(const ExportRequest& request, const ByteSink& write) {
  write(gzipped(ProfileWriter(*request.view).written(), kFastest));
  return {};
}

}  // namespace whyrss
