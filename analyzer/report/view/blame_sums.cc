#include "report/view/blame_sums.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <unordered_map>
#include <utility>

#include "model/language_runtime.h"
#include "model/python_path.h"
#include "report/view/blame.h"

namespace whyrss {
namespace {

template <typename T>
void largest_first(std::vector<T>& entries) {
  std::erase_if(entries, [](const T& entry) { return entry.bytes <= 0; });
  std::stable_sort(entries.begin(), entries.end(), [](const T& a, const T& b) { return a.bytes > b.bytes; });
}

// "a/model.py:3 in f", of a file beside which another one has its name.
std::string with_folder(const LineGrowth& growth) {
  const std::size_t slash = growth.file.rfind('/');
  if (slash == std::string::npos || slash == 0 || !path_in_package(growth.file).empty()) return growth.line;
  return base_name(growth.file.substr(0, slash)) + "/" + growth.line;
}

// What a stack is called; many stacks are blamed on one frame.
class LineNames {
 public:
  explicit LineNames(const StackTable& stacks) : stacks_(stacks) {}

  struct Name {
    std::string line, file;
    int number = 0;
    std::string_view runtime{};
  };
  const Name& operator[](StackId stack) { return of(blamed_frame(stacks_, stack)); }
  const Name& of(const Frame* frame) {
    const auto [place, is_new] = names_.try_emplace(frame);
    if (!is_new) return place->second;
    if (frame == nullptr) return place->second;
    place->second = {code_line(stacks_, frame), frame->file, frame->line};
    if (const LanguageRuntime* runtime = language_runtime(stacks_, *frame); runtime && !runtime->has_telling_functions)
      place->second.runtime = runtime->name;
    return place->second;
  }

 private:
  const StackTable& stacks_;
  std::unordered_map<const Frame*, Name> names_;
};

using LineBytes = std::map<std::string, std::int64_t>;

// Of the first depth at which not one line alone has nearly all.
std::vector<LineGrowth::Caller> callers_of(const std::array<LineBytes, kMostCallers>& by_depth, std::int64_t all) {
  constexpr double kNearlyAll = 0.9;
  for (const LineBytes& lines : by_depth) {
    std::vector<LineGrowth::Caller> callers;
    for (const auto& [line, bytes] : lines) callers.push_back({line, bytes});
    largest_first(callers);
    if (callers.size() > 1 && static_cast<double>(callers.front().bytes) < kNearlyAll * static_cast<double>(all))
      return callers;
  }
  return {};
}

// Sums by line, each with what it goes with by the line of the other kind.
class LineSums {
 public:
  LineGrowth& entry(const LineNames::Name& name) {
    Sum*& known = of_name_[&name];
    if (known == nullptr) known = &sums_[{name.line, name.file}];  // two files may share a base name
    Sum& sum = *known;
    sum.growth.line = name.line;
    sum.growth.file = name.file;
    sum.growth.number = name.number;
    sum.growth.runtime = name.runtime;
    last_ = &sum;
    return sum.growth;
  }
  // Of the last entry.
  void goes_with(const std::string& line, std::int64_t bytes, DoneBy by) {
    Other& other = last_->others[line];
    other.bytes += bytes;
    if (by == DoneBy::other_thread) other.meanwhile_bytes += bytes;
  }
  // `depth`: 0 of the line that called its function, 1 of the one that called that ...
  void called_at(std::size_t depth, const std::string& line, std::int64_t bytes) {
    last_->callers.at(depth)[line] += bytes;
  }
  void came_by(const std::string& native_line, std::int64_t bytes) { last_->native_lines[native_line] += bytes; }

  std::vector<LineGrowth> take() {
    std::vector<LineGrowth> lines;
    std::map<std::string, int> files;  // of one name
    for (const auto& [key, sum] : sums_) ++files[key.first];
    for (auto& [key, sum] : sums_) {
      if (files[key.first] > 1) sum.growth.line = with_folder(sum.growth);
      for (const auto& [line, other] : sum.others)
        if (other.bytes > sum.growth.bytes - other.bytes && line != sum.growth.line) {
          sum.growth.other_line = line;
          sum.growth.other_bytes = other.bytes;
          sum.growth.other_meanwhile = 2 * other.meanwhile_bytes > other.bytes;
        }
      for (const auto& [line, bytes] : sum.native_lines)
        if (bytes > sum.growth.bytes - bytes) {
          sum.growth.native_line = line;
          sum.growth.native_bytes = bytes;
        }
      sum.growth.callers = callers_of(sum.callers, sum.growth.bytes);
      lines.push_back(std::move(sum.growth));
    }
    largest_first(lines);
    return lines;
  }

 private:
  struct Other {
    std::int64_t bytes = 0, meanwhile_bytes = 0;
  };
  struct Sum {
    LineGrowth growth;
    std::map<std::string, Other> others;
    std::map<std::string, std::int64_t> native_lines;
    std::array<LineBytes, kMostCallers> callers;
  };
  std::map<std::pair<std::string, std::string>, Sum> sums_;
  std::unordered_map<const LineNames::Name*, Sum*> of_name_;
  Sum* last_ = nullptr;
};

void add_worked(LineGrowth& entry, DoneBy by, std::int64_t bytes) {
  if (by == DoneBy::other_thread) entry.meanwhile_bytes += bytes;
  if (by == DoneBy::started_thread) entry.thread_bytes += bytes;
  if (by == DoneBy::started_process) entry.process_bytes += bytes;
}

}  // namespace

std::vector<LineGrowth> growth_by_line(const StackTable& stacks, const std::vector<const SiteView*>& sites) {
  LineNames names(stacks);
  LineSums sums;
  for (const SiteView* site : sites) {
    LineGrowth& entry = sums.entry(names[site->stack]);
    entry.bytes += site->growth;
    entry.variance += site->variance;
    add_worked(entry, done_by(stacks, site->stack), site->growth);
    const std::vector<const Frame*> callers = calling_frames(stacks, site->stack);
    for (std::size_t depth = 0; depth < callers.size(); ++depth)
      sums.called_at(depth, names.of(callers[depth]).line, site->growth);
    if (const Frame* native = native_line_frame(stacks, site->stack)) sums.came_by(names.of(native).line, site->growth);
    for (const AdviceView& advice : site->advised())
      sums.goes_with(names[advice.stack].line, advice.growth, done_by(stacks, advice.stack));
    if (!site->advised().empty()) continue;
    for (const TouchView& touch : site->touched())
      sums.goes_with(names[touch.stack].line, touch.growth, done_by(stacks, touch.stack));
  }
  return sums.take();
}

std::vector<LineGrowth> growth_by_touch(const StackTable& stacks, const std::vector<const SiteView*>& sites) {
  LineNames names(stacks);
  LineSums sums;
  const auto add = [&](const SiteView& site, StackId stack, std::int64_t growth, double variance) {
    LineGrowth& entry = sums.entry(names[stack]);
    entry.bytes += growth;
    entry.variance += variance;
    add_worked(entry, done_by(stacks, stack), growth);
    sums.goes_with(names[site.stack].line, growth, done_by(stacks, site.stack));
  };
  for (const SiteView* site : sites) {
    if (site->touched().empty()) add(*site, kEmptyStack, site->growth, 0);
    for (const TouchView& touch : site->touched()) add(*site, touch.stack, touch.growth, touch.variance);
  }
  return sums.take();
}

std::vector<LineGrowth> growth_by_advice(const StackTable& stacks, const std::vector<const SiteView*>& sites) {
  LineNames names(stacks);
  LineSums sums;
  for (const SiteView* site : sites)
    for (const AdviceView& advice : site->advised()) {
      LineGrowth& entry = sums.entry(names[advice.stack]);
      entry.bytes += advice.growth;
      add_worked(entry, done_by(stacks, advice.stack), advice.growth);
    }
  return sums.take();
}

bool can_be_of_imports(Cause cause) {
  return cause == Cause::heap_live || cause == Cause::heap_slack || cause == Cause::anonymous ||
         cause == Cause::heap_unsplit || cause == Cause::file_cow;
}

StackId importing_stack(const StackTable& stacks, Cause cause, const SiteView& site) {
  if (site.stack != kEmptyStack && imported_frame(stacks, site.stack) == nullptr) return kEmptyStack;
  std::int64_t all = 0, imported = 0, others = 0;
  const TouchView* most = nullptr;
  for (const TouchView& touch : site.touched()) {
    all += touch.resident;
    if (touch.stack == kEmptyStack) continue;
    const bool is_import = imported_frame(stacks, touch.stack) != nullptr;
    (is_import ? imported : others) += touch.resident;
    if (is_import && (most == nullptr || touch.resident > most->resident)) most = &touch;
  }
  if (site.stack == kEmptyStack) return most != nullptr && 2 * imported > all ? most->stack : kEmptyStack;
  const bool is_filled_later = cause == Cause::anonymous || cause == Cause::heap_unsplit;
  return is_filled_later && 2 * others > all ? kEmptyStack : site.stack;
}

std::vector<MappingGrowth> growth_by_mapping(const std::vector<SiteView>& sites) {
  std::map<std::string, MappingGrowth> by_mapping;
  for (const SiteView& site : sites) {
    MappingGrowth& entry = by_mapping[site.mapping()];
    entry.mapping = site.mapping();
    entry.bytes += site.growth;
    entry.sites.push_back(&site);
  }
  std::vector<MappingGrowth> mappings;
  for (auto& [key, entry] : by_mapping) mappings.push_back(std::move(entry));
  largest_first(mappings);
  return mappings;
}

double error_percent(std::int64_t bytes, double variance) {
  return bytes == 0 || variance <= 0 ? 0 : 100 * std::sqrt(variance) / std::abs(static_cast<double>(bytes));
}

std::string error_text(std::int64_t bytes, double variance) {
  constexpr double kShownPercent = 1;  // figures have three digits
  const double percent = error_percent(bytes, variance);
  return percent > kShownPercent ? fmt::format(" ± {:.0f} %", percent) : "";
}

bool is_significant(std::int64_t bytes, double variance) {
  const auto magnitude = static_cast<double>(bytes);
  return magnitude * magnitude > 4 * variance;
}

std::int64_t sum_growth(const std::vector<const SiteView*>& sites) {
  std::int64_t sum = 0;
  for (const SiteView* site : sites) sum += site->growth;
  return sum;
}

}  // namespace whyrss
