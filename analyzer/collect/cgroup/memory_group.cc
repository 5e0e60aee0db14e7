#include "collect/cgroup/memory_group.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>

#include "collect/cgroup/systemd_scope.h"
#include "collect/read/process_presence.h"
#include "support/file.h"
#include "support/text.h"

namespace whyrss {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "whyrss-";
constexpr std::string_view kNeeds = "root, a cgroup that is delegated to you, or a session of systemd";

bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

Status write_value(const std::string& path, const std::string& value) {
  const Fd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd) return system_error("cannot open", path);
  if (write(fd.get(), value.data(), value.size()) != static_cast<ssize_t>(value.size()))
    return system_error(fmt::format("cannot write {} to", value), path);
  return Done{};
}

bool lists_word(const std::string& path, std::string_view word) {
  const auto text = read_file(path);
  if (!text) return false;
  std::string_view rest = *text;
  rest = take_until(rest, '\n');
  while (!rest.empty())
    if (take_word(rest) == word) return true;
  return false;
}

// "whyrss-<pid>-<start ticks>": no other process removes the group of a record that has ended. rmdir refuses where
// there are processes.
void remove_stale(const std::string& parent) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(parent, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    const auto parts = split(name.substr(kPrefix.size()), '-');
    if (parts.size() != 2) continue;
    const auto pid = parse_number<pid_t>(parts[0]);
    const auto ticks = parse_number<std::uint64_t>(parts[1]);
    if (pid && ticks && *pid > 0 && start_ticks_of(*pid) != ticks) rmdir(entry.path().c_str());
  }
}

struct Limits {
  const char *memory, *swap;  // files of the group
};

// A group below `parent`, with the process in it.
Result<MemoryGroup> make_below(const std::string& parent, pid_t pid, std::int64_t limit_bytes, const Limits& limits) {
  remove_stale(parent);
  const std::string path = fmt::format("{}/{}{}-{}", parent, kPrefix, getpid(), start_ticks_of(getpid()).value_or(0));
  if (mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) return system_error("cannot make", path);
  Status done = write_value(path + "/" + limits.memory, std::to_string(limit_bytes));
  // Kernels without swap lack the file: then there is only the one limit.
  if (done && exists(path + "/" + limits.swap)) done = write_value(path + "/" + limits.swap, "0");
  if (done) done = write_value(path + "/cgroup.procs", std::to_string(pid));
  if (done) return MemoryGroup{.path = path, .is_ours = true};
  remove_group(path);
  return Error{done.error()};
}

// Nothing is swapped out, so that the limit holds. memsw.limit_in_bytes would do that too, but where both limits are
// the same Linux 6.18 counts neither's hits.
Result<MemoryGroup> make_v1(const std::string& own, pid_t pid, std::int64_t limit_bytes) {
  return make_below(own, pid, limit_bytes, {.memory = "memory.limit_in_bytes", .swap = "memory.swappiness"});
}

// A group whose children have a memory limit may hold no processes, but for the root.
Result<MemoryGroup> make_v2(const std::string& mount, const std::string& own, pid_t pid, std::int64_t limit_bytes) {
  const Limits limits{.memory = "memory.max", .swap = "memory.swap.max"};
  const bool is_root = !exists(own + "/cgroup.events");
  const std::string parent = is_root || lists_word(own + "/cgroup.subtree_control", "memory") || own == mount
                                 ? own
                                 : fs::path(own).parent_path().string();
  if (!lists_word(parent + "/cgroup.subtree_control", "memory"))
    if (const Status enabled = write_value(parent + "/cgroup.subtree_control", "+memory"); !enabled)
      return Error{enabled.error()};
  return make_below(parent, pid, limit_bytes, limits);
}

Result<MemoryGroup> make_by_hand(pid_t pid, std::int64_t limit_bytes, const GroupPlace& place) {
  const auto own = find_cgroup(place.membership, place.mount);
  if (!own) return Error{fmt::format("no memory cgroup at {}", place.mount)};
  return own->version == 1 ? make_v1(own->own_path, pid, limit_bytes)
                           : make_v2(place.mount, own->own_path, pid, limit_bytes);
}

}  // namespace

GroupPlace own_place() {
  GroupPlace place;
  if (auto text = read_file("/proc/self/cgroup")) place.membership = std::move(*text);
  return place;
}

Result<MemoryGroup> confine(pid_t pid, std::int64_t limit_bytes, const GroupPlace& place) {
  // The kernel counts whole pages, and would make 0 of less than one.
  const std::int64_t bytes = std::max<std::int64_t>(limit_bytes, sysconf(_SC_PAGESIZE));
  auto by_hand = make_by_hand(pid, bytes, place);
  if (by_hand) return by_hand;
  auto scope = start_scope(pid, bytes, place.mount, place.busctl);
  if (scope) return MemoryGroup{.path = *scope, .is_ours = false};
  return Error{fmt::format("a memory limit needs {} (tried: {}; systemd: {})", kNeeds, by_hand.error(), scope.error())};
}

bool remove_group(const std::string& path) { return rmdir(path.c_str()) == 0 || errno == ENOENT; }

}  // namespace whyrss
