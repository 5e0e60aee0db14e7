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
  if (line.find("Killed process ") == std::string_view::npos) return result;
  result.pid = pid_of(between(line, "Killed process ", ' '));
  result.at_limit = line.starts_with("Memory cgroup out of memory");
  result.anon_bytes = kilobytes(line, "anon-rss:");
  result.file_bytes = kilobytes(line, "file-rss:");
  result.shmem_bytes = kilobytes(line, "shmem-rss:");
  result.kind = result.pid > 0 ? OomLine::Kind::killed : OomLine::Kind::none;
  return result;
}

}  // namespace whyrss
