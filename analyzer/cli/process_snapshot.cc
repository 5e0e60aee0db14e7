#include "cli/process_snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "collect/read/backing.h"
#include "collect/read/page_runs.h"
#include "procfs/smaps.h"
#include "support/file.h"
#include "support/proc_path.h"
#include "support/text.h"

namespace whyrss {

using trace::PageBits;

namespace {

// Dirty and locked page cache, which only smaps tells, mapping by mapping.
void add_smaps(const std::string& text, ProcessSnapshot& snapshot) {
  std::set<std::uint64_t> starts;
  for (const FileMapping& file : snapshot.files) starts.insert(file.start);
  for (const SmapsEntry& entry : parse_smaps(text)) {
    if (!starts.contains(entry.range.start)) continue;
    const std::int64_t dirty = entry.shared_dirty_bytes + entry.private_dirty_bytes;
    // A private copy counts as dirty.
    snapshot.dirty_bytes += entry.range.shared ? dirty : std::max<std::int64_t>(dirty - entry.anonymous_bytes, 0);
    for (const std::string& flag : split(entry.vm_flags, ' '))
      if (flag == "lo") snapshot.locked_bytes += std::max<std::int64_t>(entry.rss_bytes - entry.anonymous_bytes, 0);
  }
}

ProcessStat stat_of(pid_t pid) {
  ProcessStat none;
  none.state = 'X';
  const auto text = read_file(proc_path(pid, "stat"));
  return text ? parse_process_stat(*text).value_or(none) : none;
}

}  // namespace

std::vector<pid_t> all_processes() {
  std::vector<pid_t> pids;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error))
    if (const auto pid = parse_number<pid_t>(entry.path().filename().string())) pids.push_back(*pid);
  std::sort(pids.begin(), pids.end());
  return pids;
}

std::vector<std::string> command_of(pid_t pid) {
  const auto text = read_file(proc_path(pid, "cmdline"));
  std::vector<std::string> command = text ? split(*text, '\0') : std::vector<std::string>();
  while (!command.empty() && command.back().empty()) command.pop_back();
  return command;
}

Activity activity_of(pid_t pid) {
  Activity activity{.stat = stat_of(pid)};
  std::error_code error;
  for (const auto& thread : std::filesystem::directory_iterator(proc_path(pid, "task"), error)) {
    const auto text = read_file(thread.path() / "schedstat");  // Documentation/scheduler/sched-stats.rst
    if (!text) continue;
    std::string_view rest = *text;
    activity.run_ns += parse_number<std::uint64_t>(take_word(rest)).value_or(0);
    take_word(rest);  // waiting for a CPU
    rest = rest.substr(0, rest.find('\n'));
    activity.run_count += parse_number<std::uint64_t>(take_word(rest)).value_or(0);
  }
  return activity;
}

Result<ProcessSnapshot> take_snapshot(pid_t pid) {
  ProcessSnapshot snapshot;
  const char state = stat_of(pid).state;
  if (state == 'X') return Error{fmt::format("no process {}", pid)};
  if (state == 'Z') return Error{fmt::format("process {} has ended, and waits for its parent", pid)};
  BackingResolver resolver;
  const auto walk = walk_pages(pid, trace::WalkTrigger::end, probe_walk_methods(), resolver);
  if (!walk) return Error{walk.error()};
  for (const WalkedVma& vma : walk->vmas)
    for (const trace::WalkRun& run : vma.runs) {
      if (!is_counted(run.bits)) continue;
      const auto bytes = static_cast<std::int64_t>(run.page_count * kPageBytes);
      const bool is_file = (run.bits & PageBits::file) != 0;
      snapshot.rss_bytes += bytes;
      if (!is_file) snapshot.private_bytes += bytes;
      if (vma.vma.backing == trace::Backing::file) (is_file ? snapshot.file_bytes : snapshot.copied_bytes) += bytes;
    }
  snapshot.files = file_mappings(*walk);
  if (const auto text = read_file(proc_path(pid, "smaps"))) add_smaps(*text, snapshot);
  if (const auto text = read_file(proc_path(pid, "status")))
    snapshot.swap_bytes = status_value(*text, "VmSwap").value_or(0) * 1024;
  snapshot.command = command_of(pid);
  return snapshot;
}

std::map<std::string, std::int64_t> bytes_by_file(const std::vector<FileMapping>& files) {
  std::map<std::string, std::int64_t> bytes;
  for (const FileMapping& file : files)
    bytes[file.path] += static_cast<std::int64_t>(file.once_bytes + file.many_bytes);
  return bytes;
}

std::vector<pid_t> other_mappers(const FileMapping& file, pid_t pid) {
  std::vector<pid_t> found;
  for (const pid_t other : all_processes()) {
    const auto text = other == pid ? Result<std::string>(Error{}) : read_file(proc_path(other, "maps"));
    if (!text) continue;
    const std::vector<MapsEntry> entries = parse_maps(*text);
    const bool maps_it = std::any_of(entries.begin(), entries.end(), [&](const MapsEntry& entry) {
      return entry.inode == file.inode && entry.device_major == file.device_major &&
             entry.device_minor == file.device_minor;
    });
    if (maps_it) found.push_back(other);
  }
  return found;
}

std::vector<pid_t> tree_of(pid_t root) {
  std::multimap<pid_t, pid_t> children;
  for (const pid_t pid : all_processes())
    if (const ProcessStat stat = stat_of(pid); !stat.has_ended())
      children.emplace(static_cast<pid_t>(stat.parent_pid), pid);
  std::vector<pid_t> tree{root};
  for (std::size_t index = 0; index < tree.size(); ++index) {
    const auto [first, last] = children.equal_range(tree[index]);
    for (auto child = first; child != last; ++child)
      if (std::find(tree.begin(), tree.end(), child->second) == tree.end()) tree.push_back(child->second);
  }
  return tree;
}

}  // namespace whyrss
