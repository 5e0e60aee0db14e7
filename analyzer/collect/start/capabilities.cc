#include "collect/start/capabilities.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/perf_event.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "collect/cgroup/cgroup.h"
#include "collect/read/page_walk.h"
#include "shim/trace/pool.h"
#include "support/file.h"
#include "support/kernel_log.h"
#include "support/text.h"

namespace whyrss {
namespace {

// Not in the headers of Debian 12: UFFD_USER_MODE_ONLY is, UFFD_FEATURE_WP_ASYNC (Linux 6.7) is not.
constexpr std::uint64_t kUffdFeatureWpAsync = 1 << 15;

std::string errno_text() { return std::strerror(errno); }

std::string first_line(const std::string& path) {
  const auto text = read_file(path);
  if (!text) return {};
  std::string_view rest = *text;
  return std::string(take_until(rest, '\n'));
}

// Before, a SIGTRAP of an event could kill a process that had it blocked: the shim asks for none there.
bool has_safe_fault_signals(const utsname& system) {
  std::string_view release(system.release);
  const auto major = parse_number<int>(take_until(release, '.'));
  const auto minor = parse_number<int>(take_until(release, '.'));
  return major && (*major > 5 || (*major == 5 && minor && *minor >= 18));
}

Capability page_fault_events() {
  perf_event_attr attributes{};
  attributes.size = sizeof attributes;
  attributes.type = PERF_TYPE_SOFTWARE;
  attributes.config = PERF_COUNT_SW_PAGE_FAULTS;
  attributes.sample_period = 61;
  attributes.sample_type = PERF_SAMPLE_ADDR;
  attributes.exclude_kernel = 1;
  attributes.exclude_hv = 1;
  attributes.disabled = 1;
  attributes.remove_on_exec = 1;
  attributes.sigtrap = 1;
  Capability result{.name = "page_fault_events",
                    .works = false,
                    .detail = {},
                    .missing_without = "which code touched a page first",
                    .remedy = {}};
  // Open as long as we run: while there is none the kernel has its hooks patched out, and the first one, which
  // would be the program's, waits for milliseconds.
  static const Fd event(static_cast<int>(syscall(SYS_perf_event_open, &attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC)));
  const int refusal = errno;
  const std::string paranoid = first_line("/proc/sys/kernel/perf_event_paranoid");
  utsname system{};
  uname(&system);
  if (!has_safe_fault_signals(system)) {
    result.detail = fmt::format("Linux {}: page-fault signals are not safe before 5.18", system.release);
    result.remedy = "needs Linux 5.18";
    return result;
  }
  if (event) {
    result.works = true;
    result.detail = fmt::format("perf_event_open with sigtrap, perf_event_paranoid {}", paranoid);
    return result;
  }
  result.detail = fmt::format("perf_event_open: {}, perf_event_paranoid {}", std::strerror(refusal),
                              paranoid.empty() ? "absent" : paranoid);
  result.remedy =
      refusal == EINVAL ? "needs Linux 5.18" : "sysctl kernel.perf_event_paranoid=2; in Docker: --cap-add PERFMON";
  return result;
}

Capability write_tracking() {
  Capability result{.name = "write_tracking",
                    .works = false,
                    .detail = {},
                    .missing_without = "copies of pairs of processes come from shared bits, which exits blur",
                    .remedy = {}};
  const Fd uffd(static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY)));
  uffdio_api api{.api = UFFD_API, .features = kUffdFeatureWpAsync, .ioctls = 0};
  if (uffd && ioctl(uffd.get(), UFFDIO_API, &api) == 0) {
    result.works = true;
    result.detail = "userfaultfd with WP_ASYNC";
    return result;
  }
  result.detail = fmt::format("userfaultfd {}: {}", uffd ? "WP_ASYNC" : "", errno_text());
  result.remedy =
      uffd ? "needs Linux 6.7" : "in Docker: --security-opt seccomp=unconfined (or a profile with userfaultfd)";
  return result;
}

Capability shared_memory_space() {
  Capability result{.name = "shared_memory",
                    .works = false,
                    .detail = {},
                    .missing_without =
                        "events wait in the recording directory or in anonymous memory; a container's "
                        "end may take the last second along",
                    .remedy = {}};
  struct statvfs info {};
  const std::uint64_t needed = trace::pool_bytes(trace::kDefaultChunkCount, trace::kDefaultSlotCount);
  if (statvfs("/dev/shm", &info) != 0) {
    result.detail = fmt::format("/dev/shm: {}", errno_text());
    result.remedy = "mount a tmpfs on /dev/shm";
    return result;
  }
  const std::uint64_t free_bytes = std::uint64_t{info.f_bavail} * info.f_frsize;
  result.works = free_bytes >= needed && access("/dev/shm", W_OK) == 0;
  result.detail =
      fmt::format("/dev/shm has {} MiB free, up to {} MiB are used per recording", free_bytes >> 20, needed >> 20);
  if (!result.works) result.remedy = "make /dev/shm larger; in Docker: --shm-size=128m";
  return result;
}

Capability traceability() {
  Capability result{.name = "ptrace_scope",
                    .works = true,
                    .detail = {},
                    .missing_without = "exact live bytes per page",
                    .remedy = {}};
  const std::string scope = first_line("/proc/sys/kernel/yama/ptrace_scope");
  result.works = scope.empty() || scope == "0" || scope == "1";
  result.detail = scope.empty() ? "no Yama" : fmt::format("Yama ptrace_scope {}", scope);
  if (!result.works) result.remedy = "sysctl kernel.yama.ptrace_scope=1";
  return result;
}

Capability cgroup_limit() {
  Capability result{.name = "cgroup",
                    .works = false,
                    .detail = "no memory cgroup is readable",
                    .missing_without = "how near a limit the job is, and what filled it",
                    .remedy = "mount /sys/fs/cgroup into the container"};
  if (const auto cgroup = read_cgroup(getpid())) {
    result.works = true;
    result.remedy.clear();
    result.detail =
        fmt::format("v{}, {}", cgroup->version,
                    cgroup->limit_bytes ? fmt::format("limit {} MiB at {}", *cgroup->limit_bytes >> 20, cgroup->path)
                                        : std::string("no limit"));
  }
  return result;
}

Capability kernel_log() {
  Capability result{.name = "kernel_log",
                    .works = false,
                    .detail = {},
                    .missing_without = "the kernel's own line on a process that it killed for lack of memory",
                    .remedy = "run as root, or sysctl kernel.dmesg_restrict=0; outside of containers"};
  if (!kernel_log_has_our_pids()) {
    result.detail = "its process numbers are not those of this container";
  } else if (!KernelLog::open(KernelLog::From::now).is_open()) {
    result.detail = "/dev/kmsg: " + errno_text();
  } else {
    result.works = true;
    result.detail = "/dev/kmsg is readable";
    result.remedy.clear();
  }
  return result;
}

}  // namespace

std::vector<Capability> probe_capabilities() {
  const WalkMethods methods = probe_walk_methods();
  const bool rollup = access("/proc/self/smaps_rollup", R_OK) == 0;
  return {
      {.name = "pagemap",
       .works = methods.pagemap,
       .detail = methods.pagemap ? "/proc/PID/pagemap is readable" : "/proc/PID/pagemap: " + errno_text(),
       .missing_without = "page classes come from smaps only: less often, and not per page",
       .remedy = methods.pagemap ? "" : "needs CONFIG_PROC_PAGE_MONITOR, and /proc not masked by the container"},
      {.name = "pagemap_scan",
       .works = methods.scan,
       .detail =
           methods.scan ? (methods.scan_guards ? "with guard pages" : "without guard pages") : "not in this kernel",
       .missing_without = "walks cost more; zero pages come from smaps",
       .remedy = methods.scan ? "" : "needs Linux 6.7"},
      {.name = "smaps_rollup",
       .works = rollup,
       .detail = rollup ? "/proc/PID/smaps_rollup is readable" : "/proc/PID/smaps_rollup: " + errno_text(),
       .missing_without = "PSS and USS of whole processes",
       .remedy = rollup ? "" : "needs Linux 4.14"},
      page_fault_events(),
      write_tracking(),
      cgroup_limit(),
      kernel_log(),
      shared_memory_space(),
      traceability(),
  };
}

}  // namespace whyrss
