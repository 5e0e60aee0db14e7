#include "collect/cgroup.h"

#include <fmt/format.h>
#include <unistd.h>

#include "procfs/process_stat.h"
#include "support/file.h"
#include "support/text.h"

namespace whyrss {
namespace {

// v1 writes "no limit" as the largest page-aligned number.
constexpr std::int64_t kNoLimitBytes = std::int64_t{1} << 60;

struct Files {
  const char *limit, *usage, *peak, *events;
};
constexpr Files kFilesV1{.limit = "memory.limit_in_bytes",
                         .usage = "memory.usage_in_bytes",
                         .peak = "memory.max_usage_in_bytes",
                         .events = "memory.oom_control"};
constexpr Files kFilesV2{
    .limit = "memory.max", .usage = "memory.current", .peak = "memory.peak", .events = "memory.events"};

std::optional<std::int64_t> read_number(const std::string& path) {
  const auto text = read_file(path);
  if (!text) return std::nullopt;
  std::string_view rest = *text;
  return parse_number<std::int64_t>(take_until(rest, '\n'));
}

std::optional<std::int64_t> read_key(const std::string& path, std::string_view key) {
  const auto text = read_file(path);
  if (!text) return std::nullopt;
  for (std::string_view rest = *text; !rest.empty();) {
    std::string_view line = take_until(rest, '\n');
    if (take_word(line) == key) return parse_number<std::int64_t>(take_word(line));
  }
  return std::nullopt;
}

bool exists(const std::string& path) { return access(path.c_str(), R_OK) == 0; }

CgroupMemory read_up(int version, const std::string& root, std::string path, const Files& files) {
  // In a container the path may be the host's: then the mount itself is the container's group.
  if (!exists(root + path + "/" + files.usage)) path.clear();
  CgroupMemory result{
      .version = version, .path = root + path, .limit_bytes = {}, .usage_bytes = {}, .peak_bytes = {}, .oom_kills = {}};
  for (std::string at = path;; at.resize(at.rfind('/'))) {
    const auto limit = read_number(fmt::format("{}{}/{}", root, at, files.limit));
    if (limit && *limit < kNoLimitBytes && (!result.limit_bytes || *limit < *result.limit_bytes)) {
      result.limit_bytes = limit;
      result.path = root + at;
    }
    if (at.empty() || at == "/") break;
  }
  return reread_cgroup(result);
}

}  // namespace

CgroupMemory reread_cgroup(const CgroupMemory& group) {
  const Files& files = group.version == 1 ? kFilesV1 : kFilesV2;
  CgroupMemory result = group;
  result.usage_bytes = read_number(result.path + "/" + files.usage);
  result.peak_bytes = read_number(result.path + "/" + files.peak);
  result.oom_kills = read_key(result.path + "/" + files.events, "oom_kill");
  return result;
}

std::optional<CgroupMemory> read_cgroup(pid_t pid) {
  const auto text = read_file(fmt::format("/proc/{}/cgroup", pid));
  if (!text) return std::nullopt;
  std::optional<std::string> unified;
  for (std::string_view rest = *text; !rest.empty();) {
    std::string_view line = take_until(rest, '\n');
    const std::string_view number = take_until(line, ':');
    const auto controllers = split(take_until(line, ':'), ',');
    std::string path = line == "/" ? std::string() : std::string(line);
    if (number == "0") unified = path;
    for (const std::string& controller : controllers)
      if (controller == "memory" && exists("/sys/fs/cgroup/memory/memory.usage_in_bytes"))
        return read_up(1, "/sys/fs/cgroup/memory", path, kFilesV1);
  }
  if (!unified) return std::nullopt;
  if (!exists("/sys/fs/cgroup/cgroup.controllers")) return std::nullopt;
  return read_up(2, "/sys/fs/cgroup", *unified, kFilesV2);
}

}  // namespace whyrss
