#include "cli/prove_live.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

#include "cli/complain.h"
#include "cli/exit_status.h"
#include "cli/process_snapshot.h"
#include "cli/terminal.h"
#include "report/wording/format.h"
#include "support/clock.h"
#include "support/text.h"

namespace whyrss {
namespace {

constexpr std::int64_t kLittleBytes = 1 << 20;    // of file cache: not worth a proof
constexpr std::int64_t kWatchNs = 2'000'000'000;  // how long a process may take to be seen going on
constexpr useconds_t kWatchStepUs = 100'000;
constexpr std::size_t kNamedFiles = 3;  // in a line
constexpr double kShownShare = 0.1;     // of its file cache must leave a process before that is called a proof

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// "big.txt 256 MiB, libpython3.11.so 3.1 MiB and 4 more", largest first.
std::string named_files(const std::map<std::string, std::int64_t>& bytes) {
  std::vector<std::pair<std::int64_t, std::string>> files;
  for (const auto& [path, size] : bytes)
    if (size > 0) files.emplace_back(size, file_name(path));
  std::sort(files.rbegin(), files.rend());
  std::vector<std::string> parts;
  for (const auto& [size, name] : files)
    if (parts.size() < kNamedFiles) parts.push_back(fmt::format("{} {}", name, size_text(size)));
  const std::string more = files.size() > parts.size() ? fmt::format(" and {} more", files.size() - parts.size()) : "";
  return join(parts, ", ") + more;
}

// cachestat(2), Linux 6.5: how much of a file is in the page cache, mapped or not. Since 6.14 only for who may write to
// it.
std::optional<std::int64_t> cached_bytes(const FileMapping& file, pid_t pid) {
  struct CacheRange {
    std::uint64_t offset, length;  // 0: to the end
  } range{.offset = 0, .length = 0};
  struct CacheCounts {
    std::uint64_t cached, dirty, under_writeback, evicted, recently_evicted;  // pages
  } counts{};
  constexpr long kCachestat = 451;  // newer than Debian 12's headers
  const Fd fd = open_mapped(file, pid);
  if (!fd || syscall(kCachestat, fd.get(), &range, &counts, 0) != 0) return std::nullopt;
  return static_cast<std::int64_t>(counts.cached) * sysconf(_SC_PAGESIZE);
}

const FileMapping& largest(const std::vector<FileMapping>& files, std::uint64_t FileMapping::*bytes) {
  return *std::max_element(files.begin(), files.end(),
                           [&](const FileMapping& a, const FileMapping& b) { return a.*bytes < b.*bytes; });
}

// mm/madvise.c, can_do_file_pageout: the file's owner and users who may write to it; root always.
bool may_reclaim(const FileMapping& file) {
  struct stat status {};
  if (geteuid() == 0 || stat(file.path.c_str(), &status) != 0) return true;
  return status.st_uid == geteuid() || faccessat(AT_FDCWD, file.path.c_str(), W_OK, AT_EACCESS) == 0;
}

void print_row(const char* moment, const ProcessSnapshot& snapshot) {
  fmt::print("  {:<14} {:>10} {:>12} {:>10}\n", moment, size_text(snapshot.rss_bytes), size_text(snapshot.file_bytes),
             size_text(snapshot.private_bytes));
}

std::string_view state_name(char state) {
  switch (state) {
    case 'R':
      return "running";
    case 'S':
      return "sleeping";
    case 'D':
      return "waiting for the disk";
    case 'T':
    case 't':
      return "stopped";
    case 'I':
      return "idle";
    default:
      return "in another state";
  }
}

std::string counted(std::uint64_t count, const char* one, const char* many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

// Why page cache is still there.
void print_rest(const ProcessSnapshot& rest, pid_t pid) {
  std::int64_t many = 0, foreign = 0, once = 0;
  for (const FileMapping& file : rest.files) {
    many += static_cast<std::int64_t>(file.many_bytes);
    (may_reclaim(file) ? once : foreign) += static_cast<std::int64_t>(file.once_bytes);
  }
  if (many >= kLittleBytes) {
    const FileMapping& file = largest(rest.files, &FileMapping::many_bytes);
    std::vector<std::string> others;
    for (const pid_t other : other_mappers(file, pid)) others.push_back(std::to_string(other));
    if (others.size() > kNamedFiles) {
      const std::size_t more = others.size() - kNamedFiles;
      others.resize(kNamedFiles);
      others.push_back(fmt::format("{} more", more));
    }
    print_wrapped(fmt::format("stays: {} mapped more than once, most of it {}{}: taken under memory pressure only",
                              size_text(many), printable(file_name(file.path)),
                              others.empty() ? "" : ", also by pid " + join(others, ", ")));
  }
  if (rest.locked_bytes > 0)
    print_wrapped(fmt::format("stays: {} that is locked in memory (mlock)", size_text(rest.locked_bytes)));
  if (foreign >= kLittleBytes)
    print_wrapped(fmt::format("stays: {} of files that this user neither owns nor may write to", size_text(foreign)));
  if (const std::int64_t other = once - rest.locked_bytes; other >= kLittleBytes)
    print_wrapped(
        fmt::format("stays: {} that the program has touched again already, or that the kernel kept", size_text(other)));
}

// What shows that the program is none the worse: waits until it does something, but not for long.
void print_going_on(pid_t pid, const Activity& then) {
  const std::int64_t begin_ns = monotonic_ns();
  Activity now = activity_of(pid);
  const auto gone = [&] { return now.stat.has_ended() || now.stat.start_ticks != then.stat.start_ticks; };
  const auto faults = [](const Activity& at) { return at.stat.minor_faults + at.stat.major_faults; };
  const auto moved = [&] {
    return now.run_count != then.run_count || now.stat.cpu_ticks != then.stat.cpu_ticks || faults(now) != faults(then);
  };
  while (!gone() && !moved() && monotonic_ns() - begin_ns < kWatchNs) {
    usleep(kWatchStepUs);
    now = activity_of(pid);
  }
  if (gone()) {
    print_wrapped("it has ended since; its exit status went to the process that started it");
  } else if (!moved()) {
    print_wrapped(fmt::format("it is there, {} as before, and has had nothing to do for {:.0f} s",
                              state_name(now.stat.state), static_cast<double>(kWatchNs) / 1e9));
  } else {
    print_wrapped(fmt::format("it goes on ({}): since then {} on a CPU, {:.1f} ms in all, {}, {} of them with a read",
                              state_name(now.stat.state), counted(now.run_count - then.run_count, "time", "times"),
                              static_cast<double>(now.run_ns - then.run_ns) / 1e6,
                              counted(faults(now) - faults(then), "page fault", "page faults"),
                              now.stat.major_faults - then.stat.major_faults));
  }
}

int refused(pid_t pid, int reason) {
  const std::string instead = "or record it, and `whyrss prove` on the recording runs it again under a memory limit";
  if (reason == ENOSYS)
    return complain(fmt::format("pid {}: this needs Linux 5.10 (process_madvise); {}", pid, instead));
  if (reason == EPERM)
    return complain(
        fmt::format("pid {}: reclaiming pages of another process needs the capability CAP_SYS_NICE: run "
                    "`sudo whyrss prove {}` (in a container: start it with --cap-add SYS_NICE); {}",
                    pid, pid, instead));
  return complain(
      fmt::format("pid {}: the kernel refuses ({}); it needs root, or CAP_SYS_NICE and CAP_SYS_PTRACE: run "
                  "`sudo whyrss prove {}`; {}",
                  pid, std::strerror(reason), pid, instead));
}

// That it could not be walked is most often a matter of rights too.
int not_seen(pid_t pid, const std::string& error) {
  const char state = activity_of(pid).stat.state;
  if (state == 'X' || state == 'Z') return complain(error);
  if (geteuid() == 0) return complain(error);
  struct stat status {};
  const bool other_user = stat(fmt::format("/proc/{}", pid).c_str(), &status) == 0 && status.st_uid != geteuid();
  return complain(fmt::format("{}: {} can be read by root only: run `sudo whyrss prove {}`", error,
                              other_user ? "another user's process" : "this process", pid));
}

int prove_one(pid_t pid) {
  auto before = take_snapshot(pid);
  if (!before) return not_seen(pid, before.error());
  fmt::print("{} (pid {})\n", printable(shortened(join(before->command, " "), 80)), pid);
  if (before->file_bytes < kLittleBytes) {
    print_wrapped(fmt::format("RSS {}, of it {} file cache: nothing to prove", size_text(before->rss_bytes),
                              size_text(before->file_bytes)));
    return kDone;
  }
  auto reclaimer = FileReclaimer::open(pid);
  if (!reclaimer) return not_seen(pid, reclaimer.error());
  const FileMapping most = largest(before->files, &FileMapping::once_bytes);
  const auto cached_before = cached_bytes(most, pid);
  const Activity activity = activity_of(pid);
  for (const FileMapping& file : before->files)
    if (const int reason = reclaimer->reclaim(file); reason != 0) return refused(pid, reason);
  const auto after = take_snapshot(pid);
  if (!after) return complain(fmt::format("pid {} ended meanwhile", pid));
  const auto cached_after = cached_bytes(most, pid);

  fmt::print("  {:<14} {:>10} {:>12} {:>10}\n", "", "RSS", "file cache", "private");
  print_row("before", *before);
  print_row("right after", *after);
  auto gone = bytes_by_file(before->files);
  for (const auto& [path, bytes] : bytes_by_file(after->files)) gone[path] -= bytes;
  const std::int64_t left = before->file_bytes - after->file_bytes;
  if (left > 0)
    print_wrapped(fmt::format("left its RSS: {} of file cache: {}", size_text(left), printable(named_files(gone))));
  if (cached_before && cached_after && most.once_bytes >= kLittleBytes)
    print_wrapped(fmt::format("of {} the page cache held {} before, and {} after", printable(file_name(most.path)),
                              size_text(*cached_before), size_text(*cached_after)));
  if (before->dirty_bytes > 0)
    print_wrapped(fmt::format("{} of it was not written to its file yet: that stays in the page cache until it is",
                              size_text(before->dirty_bytes)));
  print_wrapped(fmt::format("left alone: {} of private memory, {} of it copies of file pages; swap {} before, {} after",
                            size_text(before->private_bytes), size_text(before->copied_bytes),
                            size_text(before->swap_bytes), size_text(after->swap_bytes)));
  print_rest(*after, pid);
  std::fflush(stdout);
  print_going_on(pid, activity);
  if (static_cast<double>(left) < kShownShare * static_cast<double>(before->file_bytes))
    return complain(fmt::format("pid {}: not shown for {} of file cache, for the reasons above", pid,
                                size_text(before->file_bytes)));
  print_wrapped(fmt::format(
      "So {} of its RSS was page cache, which the kernel takes whenever memory is needed: no leak.", size_text(left)));
  return kDone;
}

}  // namespace

int prove_processes(const std::vector<pid_t>& pids) {
  int status = kDone;
  for (const pid_t pid : pids) status = std::max(status, prove_one(pid));
  std::fflush(stdout);
  return status;
}

}  // namespace whyrss
