#include "report/render/github.h"

#include <fmt/format.h>

#include <cctype>
#include <map>
#include <optional>

#include "report/render/process_text.h"
#include "report/view/blame.h"
#include "report/wording/format.h"

namespace whyrss {
namespace {

struct Place {
  std::string file;
  int line = 0;
};

// The annotation is put beside code: only a file that can be in the checkout will do.
bool is_source(const std::string& file, std::int64_t line) { return !file.empty() && file.front() != '<' && line > 0; }

// Verdicts about views list their lines without the file's path.
std::optional<Place> place_named(const std::string& line, const StackTable& stacks) {
  for (std::size_t i = 1; i < stacks.frame_count(); ++i) {
    const Frame& frame = stacks[FrameId{static_cast<std::uint32_t>(i)}];
    if (is_source(frame.file, frame.line) && code_line(stacks, &frame) == line) return Place{frame.file, frame.line};
  }
  return std::nullopt;
}

// What an object of evidence says about a line of code.
std::optional<Place> place_of(const nlohmann::ordered_json& entry, const StackTable& stacks) {
  const auto line = entry.find("line"), file = entry.find("file"), number = entry.find("number");
  if (line == entry.end() || !line->is_string()) return std::nullopt;
  if (file == entry.end() || number == entry.end()) return place_named(line->get<std::string>(), stacks);
  if (!file->is_string() || !number->is_number_integer()) return std::nullopt;
  Place place{file->get<std::string>(), number->get<int>()};
  return is_source(place.file, place.line) ? std::optional(std::move(place)) : std::nullopt;
}

// Where a headline speaks of "a.py:3", as it may say of "a.py:3 in f", and not of "a.py:31"; npos: nowhere.
std::size_t mention(const std::string& headline, const std::string& line) {
  const std::string where = line.substr(0, line.find(" in "));
  std::size_t at = headline.find(where);
  while (at != std::string::npos && at + where.size() < headline.size() &&
         std::isdigit(static_cast<unsigned char>(headline[at + where.size()])) != 0)
    at = headline.find(where, at + 1);
  return at;
}

// Of the lines in the evidence the one that the headline names first, else the first that there is.
class PlaceSearch {
 public:
  PlaceSearch(const Verdict& verdict, const StackTable& stacks) : verdict_(&verdict), stacks_(&stacks) {}

  std::optional<Place> find() {
    visit(verdict_->evidence);
    return best_;
  }

 private:
  void visit(const nlohmann::ordered_json& value) {
    if (value.is_object()) offer(value);
    if (value.is_structured())
      for (const auto& part : value) visit(part);
  }

  void offer(const nlohmann::ordered_json& entry) {
    auto place = place_of(entry, *stacks_);
    if (!place) return;
    const std::size_t at = mention(verdict_->headline, entry.at("line").get<std::string>());
    if (best_ && at >= best_at_) return;
    best_ = std::move(place);
    best_at_ = at;
  }

  const Verdict* verdict_;
  const StackTable* stacks_;
  std::optional<Place> best_;
  std::size_t best_at_ = std::string::npos;
};

std::string relative_to(const std::string& root, const std::string& file) {
  if (root.empty() || !file.starts_with(root)) return file;
  const std::size_t begin = root.ends_with('/') ? root.size() : root.size() + 1;
  return file.size() > begin && file[begin - 1] == '/' ? file.substr(begin) : file;
}

std::string process_name(const View& view, const Verdict& verdict) {
  constexpr std::size_t kColumns = 60;
  if (!verdict.pid) return "";
  for (const ProcessView& process : view.processes)
    if (process.account->pid == *verdict.pid)
      return fmt::format("{} (pid {}): ", shortened(command_text(process.account->command), kColumns), *verdict.pid);
  return fmt::format("pid {}: ", *verdict.pid);
}

std::string annotation(const std::string& level, const View& view, const Verdict& verdict,
                       const std::optional<Place>& place, const std::string& root, const std::string& alike) {
  std::string properties;
  if (place)
    properties =
        fmt::format("file={},line={},", github_property(printable(relative_to(root, place->file))), place->line);
  properties += "title=" + github_property("whyrss: " + verdict.id);
  std::string message = process_name(view, verdict) + printable(verdict.headline);
  for (const std::string* more : {&verdict.why, &verdict.advice, &alike})
    if (!more->empty()) message.append("\n").append(printable(*more));
  return fmt::format("::{} {}::{}\n", level, properties, github_escaped(message));
}

}  // namespace

std::string github_escaped(std::string_view text) {
  std::string out;
  for (const char letter : text) {
    if (letter == '%')
      out += "%25";
    else if (letter == '\r')
      out += "%0D";
    else if (letter == '\n')
      out += "%0A";
    else
      out += letter;
  }
  return out;
}

std::string github_property(std::string_view text) {
  std::string out;
  for (const char letter : github_escaped(text)) {
    if (letter == ':')
      out += "%3A";
    else if (letter == ',')
      out += "%2C";
    else
      out += letter;
  }
  return out;
}

std::string render_github(const View& view, const std::vector<Verdict>& verdicts, const std::string& root) {
  std::string out;
  const std::vector<ProcessSection> sections = process_sections(view, verdicts);
  std::map<std::string, std::size_t> shown;
  std::size_t left_out = 0;
  for (const Severity severity : {Severity::problem, Severity::warning, Severity::info}) {
    const std::string level = severity == Severity::info ? "notice" : "warning";
    for (const Verdict& verdict : verdicts) {
      if (verdict.severity != severity || is_passed_over(sections, verdict)) continue;
      const auto place = PlaceSearch(verdict, view.recording->stacks).find();
      if (severity == Severity::info && !place) continue;
      const ProcessSection* section = section_of(sections, verdict.pid);
      if (shown[level]++ < kMostAnnotations)
        out += annotation(level, view, verdict, place, root, section == nullptr ? "" : alike_text(view, *section));
      else
        ++left_out;
    }
  }
  if (left_out > 0)
    out +=
        fmt::format("whyrss: {} more {}: whyrss report shows all\n", left_out, left_out == 1 ? "verdict" : "verdicts");
  return out;
}

}  // namespace whyrss
