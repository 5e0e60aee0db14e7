#include "procfs/oom_log.h"

#include <algorithm>
#include <climits>

#include "support/text.h"

namespace whyrss {
namespace {

// What stands between `before` and the next `end`; empty when `before` is not there.
std::string_view between(std::string_view text, std::string_view before, char end) {
  const std::size_t at = text.find(before);
  if (at == std::string_view::npos) return {};
  std::string_view rest = text.substr(at + before.size());
  return take_until(rest, end);
}

int pid_of(std::string_view digits) {
  const auto pid = parse_number<int>(digits);
  return pid && *pid > 0 ? *pid : 0;
}

std::int64_t kilobytes(std::string_view line, std::string_view name) {
  constexpr std::int64_t kKilo = 1024;
  const auto value = parse_number<std::int64_t>(between(line, name, 'k'));
  return value ? std::clamp<std::int64_t>(*value, 0, INT64_MAX / kKilo) * kKilo : 0;
}

// "rss 535711744", or many of them with escaped ends of lines between, as kernels before 6.4 have them.
void read_figures(std::string_view text, OomLine& result) {
  constexpr std::string_view kEnd = "\\x0a";
  while (!text.empty()) {
    const std::size_t at = text.find(kEnd);
    std::string_view one = text.substr(0, at);
    text = at == std::string_view::npos ? std::string_view() : text.substr(at + kEnd.size());
    std::string_view name = take_until(one, ' ');
    if (name.starts_with("total_")) name.remove_prefix(std::string_view("total_").size());
    std::optional<std::int64_t>* figure = nullptr;
    if (name == "anon" || name == "rss") figure = &result.group_anon_bytes;
    if (name == "shmem") figure = &result.group_shmem_bytes;
    if (name == "file" || name == "cache") figure = &result.group_cache_bytes;
    const auto value = figure == nullptr ? std::nullopt : parse_number<std::int64_t>(one);
    if (!value || *value < 0) continue;
    *figure = *value;
    result.kind = OomLine::Kind::figures;
  }
}

}  // namespace

OomLine parse_oom_line(std::string_view line) {
  OomLine result;
  if (line.starts_with("oom-kill:constraint=")) {
    result.pid = pid_of(between(line, ",pid=", ','));
    result.at_limit = line.find("=CONSTRAINT_MEMCG,") != std::string_view::npos;
    result.group = between(line, ",oom_memcg=", ',');
    result.kind = result.pid > 0 ? OomLine::Kind::chosen : OomLine::Kind::none;
    return result;
  }
  if (line.starts_with("memory: usage ")) {
    result.limit_bytes = kilobytes(line, ", limit ");
    result.kind = OomLine::Kind::usage;
    return result;
  }
  if (line.find("Killed process ") == std::string_view::npos) {
    read_figures(line, result);
    return result;
  }
  result.pid = pid_of(between(line, "Killed process ", ' '));
  result.at_limit = line.starts_with("Memory cgroup out of memory");
  result.anon_bytes = kilobytes(line, "anon-rss:");
  result.file_bytes = kilobytes(line, "file-rss:");
  result.shmem_bytes = kilobytes(line, "shmem-rss:");
  result.kind = result.pid > 0 ? OomLine::Kind::killed : OomLine::Kind::none;
  return result;
}

}  // namespace whyrss
