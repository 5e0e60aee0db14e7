#include "report/verdicts/growth_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <utility>

#include "report/view/blame_sums.h"
#include "report/view/verdict_thresholds.h"
#include "report/wording/format.h"

namespace whyrss {
namespace {

constexpr std::string_view kLibraryCode = "library code", kLibraryData = "library data", kImports = "imports",
                           kWhyrss = "whyrss", kOther = "other";

std::string_view name_of(Cause cause) {
  switch (cause) {
    case Cause::file_cache:
      return "file cache";
    case Cause::file_cow:
      return "private file pages";
    case Cause::shared_memory:
      return "shared memory";
    case Cause::heap_live:
      return "live";
    case Cause::heap_slack:
      return "free beside live";
    case Cause::heap_retained:
      return "freed but kept";
    case Cause::heap_metadata:
      return "allocator's own";
    case Cause::heap_unsplit:
      return "library allocators";
    case Cause::anonymous:
      return "mapped";
    case Cause::lazy_free:
      return "given up";
    case Cause::fork_shared:
      return "inherited";
    case Cause::fork_cow:
      return "copied";
    case Cause::stack:
      return "stacks";
    case Cause::unknown:
    case Cause::not_looked_at:
      return "not known";
    case Cause::whyrss:
      return kWhyrss;
    default:
      return kOther;
  }
}

bool comes_last(std::string_view name) { return name == kLibraryCode || name == kLibraryData || name == kImports; }

// How size_text() shows a size, in steps of its last digit.
struct Unit {
  double bytes = 1;
  int decimals = 0;
  std::int64_t shown = 0;
  [[nodiscard]] std::int64_t rounded(std::int64_t size) const {
    return std::llround(static_cast<double>(size) / bytes * std::pow(10, decimals));
  }
  [[nodiscard]] std::string text(std::int64_t steps) const {
    return fmt::format("{:.{}f}", static_cast<double>(steps) / std::pow(10, decimals), decimals);
  }
};

Unit unit_of(std::int64_t size) {
  const std::string text = size_text(size);
  const std::size_t space = text.find(' '), point = text.find('.');
  Unit unit;
  if (point < space) unit.decimals = static_cast<int>(space - point - 1);
  for (const char letter : std::string_view("KMGT")) {
    if (text[space + 1] == 'B') break;
    unit.bytes *= 1024;
    if (text[space + 1] == letter) break;
  }
  unit.shown = std::llround(std::stod(text) * std::pow(10, unit.decimals));
  return unit;
}

}  // namespace

std::int64_t import_growth(const StackTable& stacks, const CauseView& cause) {
  if (!can_be_of_imports(cause.cause)) return 0;
  std::int64_t sum = 0;
  for (const SiteView& site : cause.sites)
    if (importing_stack(stacks, cause.cause, site) != kEmptyStack) sum += site.growth;
  return sum;
}

CauseView without_imports(const StackTable& stacks, const CauseView& cause) {
  CauseView own = cause;
  own.rss.last -= import_growth(stacks, cause);
  if (own.rss.last != cause.rss.last)
    std::erase_if(own.sites,
                  [&](const SiteView& site) { return importing_stack(stacks, cause.cause, site) != kEmptyStack; });
  return own;
}

bool is_code_file(const ProcessAccount& process, std::string_view path) {
  const std::size_t at = path.rfind(".so");
  return (at != std::string_view::npos && (at + 3 == path.size() || path[at + 3] == '.')) || path == process.exe;
}

CauseView without_library_data(const ProcessAccount& process, const CauseView& cause) {
  if (cause.cause != Cause::file_cow) return cause;
  CauseView own = cause;
  std::erase_if(own.sites, [&](const SiteView& site) { return is_code_file(process, site.mapping()); });
  std::int64_t left = 0, whole = 0;
  for (const SiteView& site : own.sites) left += site.growth;
  for (const SiteView& site : cause.sites) whole += site.growth;
  if (whole - left >= kNamedGrowthBytes || left < kNamedGrowthBytes) return cause;
  own.rss.last -= whole - left;
  return own;
}

std::vector<GrowthPart> growth_parts(const StackTable& stacks, const ProcessView& process) {
  std::map<std::string_view, std::int64_t> sums;
  for (const CauseView& cause : process.causes) {
    const std::int64_t imports = import_growth(stacks, cause);
    std::int64_t of_libraries = 0;
    if (cause.cause == Cause::file_cache || cause.cause == Cause::file_cow)
      for (const SiteView& site : cause.sites)
        if (is_code_file(*process.account, site.mapping()) &&
            (imports == 0 || importing_stack(stacks, cause.cause, site) == kEmptyStack))
          of_libraries += site.growth;
    sums[kImports] += imports;
    sums[cause.cause == Cause::file_cow ? kLibraryData : kLibraryCode] += of_libraries;
    sums[name_of(cause.cause)] += cause.rss.growth() - imports - of_libraries;
  }
  std::vector<GrowthPart> parts;
  for (const auto& [name, bytes] : sums)
    if (bytes != 0) parts.push_back({name, bytes});
  std::ranges::stable_sort(parts, [](const GrowthPart& a, const GrowthPart& b) {
    return comes_last(a.name) != comes_last(b.name) ? comes_last(b.name) : a.bytes > b.bytes;
  });
  return parts;
}

std::string growth_parts_text(const StackTable& stacks, const ProcessView& process) {
  constexpr double kShownShare = 0.03;
  const std::int64_t growth = process.rss.growth();
  if (!process.walked || growth < kNamedGrowthBytes) return "";
  const Unit unit = unit_of(growth);
  struct Shown {
    std::string_view name;
    std::int64_t steps;
  };
  std::vector<Shown> shown;
  std::int64_t left = unit.shown, left_bytes = growth;
  for (const GrowthPart& part : growth_parts(stacks, process)) {
    const bool is_small = std::abs(static_cast<double>(part.bytes)) < kShownShare * static_cast<double>(growth) ||
                          (part.name == kWhyrss && part.bytes < kNamedGrowthBytes);
    if (is_small || part.name == kOther || unit.rounded(part.bytes) == 0) continue;
    shown.push_back({part.name, unit.rounded(part.bytes)});
    left -= shown.back().steps;
    left_bytes -= part.bytes;
  }
  // What is left beside small parts is the rounding of those that are shown.
  const std::int64_t rounding = left - unit.rounded(left_bytes);
  if (!shown.empty()) {
    std::ranges::max_element(shown, {}, &Shown::steps)->steps += rounding;
    left -= rounding;
  }
  if (left != 0) shown.push_back({kOther, left});
  std::string text;
  for (const Shown& part : shown)
    text += fmt::format("{}{} {}",
                        text.empty()     ? (part.steps < 0 ? " = -" : " = ")
                        : part.steps < 0 ? " - "
                                         : " + ",
                        unit.text(std::abs(part.steps)), part.name);
  return text;
}

}  // namespace whyrss
