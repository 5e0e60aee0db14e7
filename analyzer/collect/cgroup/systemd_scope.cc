#include "collect/cgroup/systemd_scope.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <vector>

#include "collect/cgroup/cgroup.h"
#include "support/clock.h"
#include "support/file.h"
#include "support/program_output.h"
#include "support/text.h"

namespace whyrss {
namespace {

constexpr std::int64_t kInForceNs = 5'000'000'000;
constexpr std::array<const char*, 2> kManagers{"user", "system"};

std::vector<std::string> scope_call(const std::string& busctl, const std::string& manager, const std::string& name,
                                    pid_t pid, std::int64_t limit_bytes) {
  return {busctl, "--" + manager, "--quiet", "--allow-interactive-authorization=no", "call", "org.freedesktop.systemd1",
          "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager", "StartTransientUnit", "ssa(sv)a(sa(sv))",
          name, "fail",
          // properties: name, type, value
          "4", "PIDs", "au", "1", std::to_string(pid), "MemoryMax", "t", std::to_string(limit_bytes), "MemorySwapMax",
          "t", "0", "CollectMode", "s", "inactive-or-failed",
          // auxiliary units
          "0"};
}

// The manager answers before it has done it.
std::optional<std::string> wait_for_limit(pid_t pid, const std::string& name, std::int64_t limit_bytes,
                                          const std::string& mount) {
  const std::int64_t deadline_ns = monotonic_ns() + kInForceNs;
  while (monotonic_ns() < deadline_ns) {
    const auto text = read_file(fmt::format("/proc/{}/cgroup", pid));
    const auto group = text ? find_cgroup(*text, mount) : std::nullopt;
    if (group && group->own_path.ends_with("/" + name) && group->path == group->own_path &&
        group->limit_bytes.value_or(INT64_MAX) <= limit_bytes)
      return group->path;
    usleep(5000);
  }
  return std::nullopt;
}

}  // namespace

Result<std::string> start_scope(pid_t pid, std::int64_t limit_bytes, const std::string& cgroup_mount,
                                const std::string& busctl) {
  std::string tried;
  for (const char* manager : kManagers) {
    const std::string name = fmt::format("whyrss-{}.scope", pid);
    const auto output = run_program(scope_call(busctl, manager, name, pid, limit_bytes));
    if (!output) return Error{"systemd: " + output.error()};
    tried += fmt::format("{}systemd's {} manager: ", tried.empty() ? "" : "; ", manager);
    if (output->status != 0) {
      tried += output->first_line;
      continue;
    }
    if (const auto path = wait_for_limit(pid, name, limit_bytes, cgroup_mount)) return *path;
    return Error{tried + "made " + name + ", but set no memory limit (is the memory controller delegated?)"};
  }
  return Error{tried};
}

}  // namespace whyrss
