#include "collect/cgroup/cgroup.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "support/file.h"
#include "support/text.h"

namespace whyrss {
namespace {

// v1 writes "no limit" as the largest page-aligned number.
constexpr std::int64_t kNoLimitBytes = std::int64_t{1} << 60;

struct Files {
  const char *limit, *usage, *peak;
};
constexpr Files kFilesV1{
    .limit = "memory.limit_in_bytes", .usage = "memory.usage_in_bytes", .peak = "memory.max_usage_in_bytes"};
constexpr Files kFilesV2{.limit = "memory.max", .usage = "memory.current", .peak = "memory.peak"};

const Files& files_of(const CgroupMemory& group) { return group.version == 1 ? kFilesV1 : kFilesV2; }

std::optional<std::int64_t> read_number(const std::string& path) {
  const auto text = read_file(path);
  if (!text) return std::nullopt;
  std::string_view rest = *text;
  return parse_number<std::int64_t>(take_until(rest, '\n'));
}

// "name value" lines; empty when it cannot be read.
CgroupFigures read_keys(const std::string& path) {
  CgroupFigures keys;
  const auto text = read_file(path);
  if (!text) return keys;
  for (std::string_view rest = *text; !rest.empty();) {
    std::string_view line = take_until(rest, '\n');
    const std::string_view name = take_word(line);
    if (const auto value = parse_number<std::int64_t>(take_word(line))) keys[std::string(name)] = *value;
  }
  return keys;
}

bool is_readable(const std::string& path) { return access(path.c_str(), R_OK) == 0; }

CgroupMemory read_up(int version, const std::string& root, std::string path, const Files& files) {
  // In a container the path may be the host's: then the mount itself is the container's group.
  if (!is_readable(root + path + "/" + files.usage)) path.clear();
  CgroupMemory result;
  result.version = version;
  result.path = result.own_path = root + path;
  for (std::string at = path;; at.resize(at.rfind('/'))) {
    const auto limit = read_number(fmt::format("{}{}/{}", root, at, files.limit));
    if (limit && *limit < kNoLimitBytes) result.limits.push_back({.path = root + at, .limit_bytes = *limit});
    if (limit && *limit < kNoLimitBytes && (!result.limit_bytes || *limit < *result.limit_bytes)) {
      result.limit_bytes = limit;
      result.path = root + at;
    }
    if (at.empty() || at == "/") break;
  }
  if (version == 2) result.kills_all = read_number(result.path + "/memory.oom.group") == 1;
  return result;
}

// Copies keys under other names, in bytes.
struct Named {
  const char *key, *name;
  bool in_pages;
};

void take(const CgroupFigures& keys, std::initializer_list<Named> wanted, CgroupFigures& figures) {
  static const std::int64_t page_bytes = sysconf(_SC_PAGESIZE);
  for (const Named& entry : wanted)
    if (const auto found = keys.find(entry.key); found != keys.end() && !figures.contains(entry.name))
      figures[entry.name] = found->second * (entry.in_pages ? page_bytes : 1);
}

void take_number(const std::string& path, const char* name, CgroupFigures& figures) {
  if (const auto value = read_number(path)) figures[name] = *value;
}

// Both versions count shmem as page cache too; the kernel takes that back only by swapping.
void take_file(const CgroupFigures& keys, const char* cache, CgroupFigures& figures) {
  const auto found = keys.find(cache);
  if (found == keys.end()) return;
  const auto shmem = figures.find("shmem_bytes");
  figures["file_bytes"] = std::max<std::int64_t>(found->second - (shmem == figures.end() ? 0 : shmem->second), 0);
}

void read_v1(const CgroupMemory& group, CgroupFigures& figures) {
  const CgroupFigures stat = read_keys(group.path + "/memory.stat");
  take(stat,
       {{"total_rss", "anon_bytes", false},
        {"total_shmem", "shmem_bytes", false},
        {"total_mapped_file", "mapped_file_bytes", false},
        {"total_dirty", "dirty_bytes", false},
        {"total_swap", "swap_bytes", false},
        {"total_workingset_refault_file", "refaulted_bytes", true}},
       figures);
  take_file(stat, "total_cache", figures);
  take_number(group.path + "/memory.kmem.usage_in_bytes", "kernel_bytes", figures);
  // Where memory and swap together have the same limit, as docker sets it, that one is met first, and some kernels do
  // not count there: then nothing is known.
  const auto hits = read_number(group.path + "/memory.failcnt");
  const auto swap_hits = read_number(group.path + "/memory.memsw.failcnt");
  const auto swap_limit = read_number(group.path + "/memory.memsw.limit_in_bytes");
  const bool hidden = swap_limit && group.limit_bytes && *swap_limit <= *group.limit_bytes;
  if (hits && (!hidden || *hits + swap_hits.value_or(0) > 0)) figures["limit_hits"] = *hits + swap_hits.value_or(0);
  take(read_keys(group.own_path + "/memory.oom_control"), {{"oom_kill", "oom_kills", false}}, figures);
  if (group.own_path == group.path) return;
  const CgroupFigures above = read_keys(group.path + "/memory.oom_control");
  if (const auto kills = above.find("oom_kill"); kills != above.end()) figures["oom_kills"] += kills->second;
}

void read_v2(const CgroupMemory& group, CgroupFigures& figures) {
  const CgroupFigures stat = read_keys(group.path + "/memory.stat");
  take(stat,
       {{"anon", "anon_bytes", false},
        {"shmem", "shmem_bytes", false},
        {"file_mapped", "mapped_file_bytes", false},
        {"file_dirty", "dirty_bytes", false},
        {"kernel", "kernel_bytes", false},
        {"pgsteal", "reclaimed_bytes", true},
        {"workingset_refault_file", "refaulted_bytes", true},
        {"workingset_refault", "refaulted_bytes", true}},  // before Linux 5.9
       figures);
  take_file(stat, "file", figures);
  take_number(group.path + "/memory.swap.current", "swap_bytes", figures);
  take_number(group.path + "/memory.high", "high_bytes", figures);
  take(read_keys(group.path + "/memory.events"),
       {{"max", "limit_hits", false},
        {"high", "high_hits", false},
        {"oom_kill", "oom_kills", false},
        {"oom_group_kill", "group_kills", false}},
       figures);
}

}  // namespace

CgroupFigures read_figures(const CgroupMemory& group) {
  CgroupFigures figures;
  take_number(group.path + "/" + files_of(group).usage, "usage_bytes", figures);
  take_number(group.path + "/" + files_of(group).peak, "peak_bytes", figures);
  if (group.version == 1)
    read_v1(group, figures);
  else
    read_v2(group, figures);
  return figures;
}

std::optional<std::int64_t> read_usage(const CgroupMemory& group) {
  return read_number(group.path + "/" + files_of(group).usage);
}

std::optional<Headroom> read_headroom(const CgroupMemory& group) {
  std::optional<Headroom> least;
  for (const LimitedGroup& limited : group.limits) {
    const auto usage = read_number(limited.path + "/" + files_of(group).usage);
    if (!usage) continue;
    const std::int64_t left = std::max<std::int64_t>(limited.limit_bytes - *usage, 0);
    if (!least || left < least->bytes) least = {.bytes = left, .group = limited};
  }
  return least;
}

std::int64_t with_cache_bytes(const Headroom& headroom) {
  const CgroupFigures stat = read_keys(headroom.group.path + "/memory.stat");
  std::int64_t bytes = headroom.bytes;
  for (const char* active : {"inactive_file", "active_file"}) {
    const auto of_tree = stat.find(fmt::format("total_{}", active));  // v1
    const auto found = of_tree != stat.end() ? of_tree : stat.find(active);
    if (found != stat.end()) bytes += found->second;
  }
  return bytes;
}

std::optional<CgroupMemory> find_cgroup(const std::string& membership, const std::string& mount) {
  std::optional<std::string> unified;
  for (std::string_view rest = membership; !rest.empty();) {
    std::string_view line = take_until(rest, '\n');
    const std::string_view number = take_until(line, ':');
    const auto controllers = split(take_until(line, ':'), ',');
    std::string path = line == "/" ? std::string() : std::string(line);
    if (number == "0") unified = path;
    for (const std::string& controller : controllers)
      if (controller == "memory" && is_readable(mount + "/memory/memory.usage_in_bytes"))
        return read_up(1, mount + "/memory", path, kFilesV1);
  }
  if (!unified || !is_readable(mount + "/cgroup.controllers")) return std::nullopt;
  return read_up(2, mount, *unified, kFilesV2);
}

std::optional<CgroupMemory> cgroup_at(const std::string& directory) {
  CgroupMemory group;
  group.version = is_readable(directory + "/" + kFilesV1.limit) ? 1 : 2;
  group.path = group.own_path = directory;
  group.limit_bytes = read_number(directory + "/" + files_of(group).limit);
  if (group.limit_bytes) group.limits.push_back({.path = directory, .limit_bytes = *group.limit_bytes});
  return group.limit_bytes ? std::optional(group) : std::nullopt;
}

std::optional<CgroupMemory> read_cgroup(pid_t pid) {
  const auto text = read_file(fmt::format("/proc/{}/cgroup", pid));
  return text ? find_cgroup(*text, kCgroupMount) : std::nullopt;
}

}  // namespace whyrss
