#include "cli/fail_if.h"

#include <fmt/format.h>

#include <optional>

#include "cli/size_option.h"

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

}  // namespace

Result<FailIf> parse_fail_if(const std::string& text) {
  const std::size_t sign = text.find('>');
  if (sign == std::string::npos)
    return Error{
        fmt::format("--fail-if '{}': expected a cause or rss, pss, uss, then > and a size, as fork_cow>2GiB", text)};
  FailIf condition;
  condition.name = trimmed(text.substr(0, sign));
  condition.or_equal = sign + 1 < text.size() && text[sign + 1] == '=';
  const Result<std::int64_t> limit = parse_size(trimmed(text.substr(sign + (condition.or_equal ? 2 : 1))));
  if (!limit) return Error{fmt::format("--fail-if '{}': {}", text, limit.error())};
  condition.limit_bytes = *limit;
  if (is_total(condition.name) || cause_of(condition.name)) return condition;
  std::string known = "rss, pss, uss";
  for (const CauseInfo& row : kCauses) known += fmt::format(", {}", row.slug);
  return Error{fmt::format("--fail-if '{}': no figure named '{}' (known: {})", text, condition.name, known)};
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
