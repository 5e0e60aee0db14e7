#include "cli/fail_if.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "cli/complain.h"
#include "cli/exit_status.h"
#include "cli/size_option.h"
#include "report/wording/format.h"

namespace whyrss {
namespace {

std::optional<Cause> cause_of(const std::string& slug) {
  for (const CauseInfo& row : kCauses)
    if (row.slug == slug) return row.cause;
  return std::nullopt;
}

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(' ');
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(' ') - first + 1);
}

bool is_total(const std::string& name) { return name == "rss" || name == "pss" || name == "uss"; }

std::string held_text(const std::string& text, const DiffFigure& figure) {
  const auto percent = figure.percent();
  return fmt::format("--fail-if {}: {} in A, {} in B: {}{}", text, size_text(figure.a), size_text(figure.b),
                     growth_text(figure.change()), percent ? fmt::format(" ({:+.1f} %)", *percent) : "");
}

}  // namespace

namespace {

struct NameAndLimit {
  FailIf condition;
  std::string limit;  // as typed
};

Result<NameAndLimit> parse_name(const std::string& text) {
  const std::size_t sign = text.find('>');
  if (sign == std::string::npos)
    return Error{
        fmt::format("--fail-if '{}': expected a cause or rss, pss, uss, then > and a size, as fork_cow>2GiB", text)};
  FailIf condition;
  condition.name = trimmed(text.substr(0, sign));
  condition.or_equal = sign + 1 < text.size() && text[sign + 1] == '=';
  const std::string limit = trimmed(text.substr(sign + (condition.or_equal ? 2 : 1)));
  if (is_total(condition.name) || cause_of(condition.name)) return NameAndLimit{condition, limit};
  std::string known = "rss, pss, uss";
  for (const CauseInfo& row : kCauses) known += fmt::format(", {}", row.slug);
  return Error{fmt::format("--fail-if '{}': no figure named '{}' (known: {})", text, condition.name, known)};
}

std::optional<double> parse_percent(const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  const bool is_percent = error == std::errc{} && trimmed(std::string(stop, end)) == "%";
  return is_percent && std::isfinite(value) && value >= 0 ? std::optional(value) : std::nullopt;
}

// Of all processes; nothing where it is not known.
std::optional<std::int64_t> total_of(const std::string& name, const View& view, SiteFigure which) {
  std::int64_t sum = 0;
  for (const ProcessView& process : view.processes) {
    if (!process.walked) continue;
    const auto pss = which == SiteFigure::growth ? process.pss.growth()
                                                 : (which == SiteFigure::at_peak ? process.pss.peak : process.pss.last);
    if (name == "pss" && !pss) return std::nullopt;
    sum += name == "pss" ? *pss : figure_of(process.uss, which);
  }
  return sum;
}

}  // namespace

Result<FailIf> parse_fail_if(const std::string& text) {
  Result<NameAndLimit> parsed = parse_name(text);
  if (!parsed) return Error{parsed.error()};
  const Result<std::int64_t> limit = parse_size(parsed->limit);
  if (!limit) return Error{fmt::format("--fail-if '{}': {}", text, limit.error())};
  parsed->condition.limit_bytes = *limit;
  return parsed->condition;
}

Result<DiffFailIf> parse_diff_fail_if(const std::string& text) {
  const Result<NameAndLimit> parsed = parse_name(text);
  if (!parsed) return Error{parsed.error()};
  std::string limit = parsed->limit;
  if (limit.starts_with('+')) limit = trimmed(limit.substr(1));
  DiffFailIf condition{parsed->condition, parse_percent(limit)};
  if (condition.percent) return condition;
  const Result<std::int64_t> size = parse_size(limit);
  if (!size)
    return Error{
        fmt::format("--fail-if '{}': '{}' is neither a size nor a percentage, as 64MiB or +10%", text, parsed->limit)};
  condition.base.limit_bytes = *size;
  return condition;
}

Result<DiffFigure> figure_of(const DiffFailIf& condition, const Diff& diff) {
  const std::string& name = condition.base.name;
  if (name == "rss") return diff.rss;
  if (const auto cause = cause_of(name)) {
    for (const DiffCause& one : diff.causes)
      if (one.cause == *cause) return one.figure;
    return DiffFigure{};
  }
  const auto a = total_of(name, *diff.a, diff.which), b = total_of(name, *diff.b, diff.which);
  if (!a || !b) return Error{fmt::format("--fail-if {}: PSS of a process of {} was not read", name, a ? "B" : "A")};
  return DiffFigure{.a = *a, .b = *b};
}

bool holds(const DiffFailIf& condition, const DiffFigure& figure) {
  const auto change = static_cast<double>(figure.change());
  const double limit = condition.percent ? *condition.percent / 100 * std::max(0.0, static_cast<double>(figure.a))
                                         : static_cast<double>(condition.base.limit_bytes);
  return condition.base.or_equal ? change >= limit : change > limit;
}

Result<std::optional<DiffFailIf>> optional_diff_fail_if(const std::string& text) {
  if (text.empty()) return std::optional<DiffFailIf>();
  const Result<DiffFailIf> parsed = parse_diff_fail_if(text);
  if (!parsed) return Error{parsed.error()};
  return std::optional(*parsed);
}

int end_by(const DiffFailIf& condition, const std::string& text, const Result<DiffFigure>& figure) {
  if (!figure) return complain(figure.error(), kFailed);
  return holds(condition, *figure) ? complain(held_text(text, *figure), kFailIfHeld) : kDone;
}

Result<std::int64_t> growth_of(const FailIf& condition, const View& view) {
  const std::optional<Cause> cause = cause_of(condition.name);
  std::int64_t sum = 0;
  for (const ProcessView& process : view.processes) {
    if (!process.walked) continue;
    if (cause) {
      if (const CauseView* found = process.find(*cause)) sum += found->rss.growth();
    } else if (condition.name == "rss") {
      sum += process.rss.growth();
    } else if (condition.name == "uss") {
      sum += process.uss.growth();
    } else {
      const std::optional<std::int64_t> growth = process.pss.growth();
      if (!growth)
        return Error{fmt::format("--fail-if {}: PSS of pid {} was not read at both ends of the interval",
                                 condition.name, process.account->pid)};
      sum += *growth;
    }
  }
  return sum;
}

Result<bool> holds(const FailIf& condition, const View& view) {
  const Result<std::int64_t> growth = growth_of(condition, view);
  if (!growth) return Error{growth.error()};
  return condition.or_equal ? *growth >= condition.limit_bytes : *growth > condition.limit_bytes;
}

}  // namespace whyrss
