#include "collect/loop/unmapped_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "support/clock.h"
#include "support/file.h"
#include "support/proc_path.h"

namespace whyrss {
namespace {

// Below this much nothing is asked of mappings: all of all processes are read for it.
constexpr std::int64_t kLeastBytes = 1024 * 1024;
constexpr std::int64_t kLongestGapNs = 400'000'000;
constexpr std::int64_t kCostsBetween = 400;
constexpr std::int64_t kCostsBetweenGrown = 20;
constexpr std::int64_t kGrownBytes = 16 << 20;
constexpr std::size_t kMostPids = 4096;
constexpr std::size_t kNamedFiles = 32;  // in the recording

using Process = UnmappedReader::Process;

bool lives(const std::vector<Process>& living, ProcessKey key) {
  return std::ranges::find(living, key, &Process::key) != living.end();
}

// One that has ended, but was not waited for, has no open files either.
bool has_ended(pid_t pid) {
  const auto command = read_file(proc_path(pid, "cmdline"));
  return !command || command->empty();
}

bool has_name(const std::string& path) {
  return path.starts_with('/') && !path.starts_with("/memfd:") && !path.ends_with(" (deleted)");
}

}  // namespace

// The first one counts.
void UnmappedReader::add(HeldFiles& held, SharedFile&& file, ProcessKey process) {
  const SharedFileId id = file.id;
  held.try_emplace(id, Held{std::move(file), process});
}

// As of files in /dev/shm: one that was there before the job is its own once it was emptied.
bool UnmappedReader::is_of_before(const SharedFile& file, double since_s) const {
  return has_name(file.path) && (made_.contains(file.id) ? file.changed_s : file.made_s) < since_s;
}

// What a fork left open in several is the oldest one's.
UnmappedReader::HeldFiles UnmappedReader::find_open(const std::vector<Process>& living) {
  HeldFiles held;
  // Of one that was attached to also what it has made before.
  const std::int64_t age_ns = monotonic_ns() - living.front().born_ns;
  const double since_s = std::min(since_s_, static_cast<double>(clock_ns(CLOCK_REALTIME) - age_ns) / 1e9);
  for (const Process& process : living) {
    auto files = open_shared_files(process.pid, *resolver_);
    if (!files && !has_ended(process.pid)) unreadable_.insert(process.key);
    if (!files) continue;
    for (SharedFile& file : *files)
      if (!is_of_before(file, since_s)) add(held, std::move(file), process.key);
  }
  return held;
}

void UnmappedReader::add_named(const Process& first, HeldFiles& held) {
  SharedFileSigns signs{.pids = {}, .since_s = since_s_, .inodes = {}};
  for (const auto& [pid, key] : seen_pids_) signs.pids.insert(pid);
  for (const auto& [id, process] : made_) signs.inodes.insert(id.inode);
  std::map<SharedFileId, ProcessKey> still_there;
  for (NamedSharedFile& named : find_named_files(first.pid, signs, *resolver_)) {
    if (const auto made = made_.find(named.file.id); made != made_.end()) {
      still_there.insert(*made);
      add(held, std::move(named.file), made->second);
    } else if (named.pid != 0) {
      add(held, std::move(named.file), seen_pids_.at(named.pid));
    }
  }
  made_ = std::move(still_there);
  made_by_.clear();
  for (const auto& [id, process] : made_) made_by_.insert(process);
  for (const auto& [id, known] : known_) {
    if (held.contains(id) || !has_name(known.file.path)) continue;
    if (auto file = shared_file_at(first.pid, known.file.path, *resolver_); file && file->id == id)
      add(held, std::move(*file), known.process);
  }
}

std::map<ProcessKey, std::vector<UnmappedReader::File>> UnmappedReader::count(const std::vector<Process>& living,
                                                                              const HeldFiles& held) {
  std::map<ProcessKey, std::vector<File>> found;
  std::int64_t sum = 0;
  for (const auto& [id, one] : held) sum += one.file.memory_bytes;
  if (sum < kLeastBytes) return found;
  MappedParts mapped;
  for (const Process& process : living)
    if (const auto maps = read_file(proc_path(process.pid, "maps"))) mapped.add(parse_maps(*maps));
  for (const auto& [id, one] : held) {
    const std::int64_t bytes = one.file.memory_bytes - mapped.bytes_of(id);
    if (bytes <= 0) continue;
    found[lives(living, one.process) ? one.process : living.front().key].push_back({one.file.path, bytes, id});
  }
  return found;
}

void UnmappedReader::add_segments(const std::vector<Process>& living,
                                  std::map<ProcessKey, std::vector<File>>& found) const {
  const auto text = read_file("/proc/sysvipc/shm");
  if (!text) return;
  for (const DetachedSegment& segment : parse_detached_segments(*text)) {
    const auto creator = seen_pids_.find(segment.creator);
    if (creator == seen_pids_.end() || segment.memory_bytes == 0) continue;
    found[lives(living, creator->second) ? creator->second : living.front().key].push_back(
        {segment.name, segment.memory_bytes, {.inode = segment.id}});
  }
}

bool UnmappedReader::is_due(std::int64_t now_ns, std::int64_t group_bytes) {
  const bool grown = group_bytes - group_bytes_ >= kGrownBytes && now_ns >= next_grown_ns_;
  if (now_ns < next_ns_ && !grown) return false;
  group_bytes_ = group_bytes;
  return true;
}

std::vector<std::pair<ProcessKey, UnmappedReader::Files>> UnmappedReader::read(std::vector<Process> living) {
  const std::int64_t begin_cpu_ns = thread_cpu_ns();
  std::vector<std::pair<ProcessKey, Files>> changes;
  if (living.empty()) return changes;
  std::ranges::sort(living, {}, [](const Process& process) { return std::pair(process.born_ns, process.pid); });
  if (seen_pids_.size() > kMostPids) seen_pids_.clear();
  for (const Process& process : living) seen_pids_[process.pid] = process.key;
  first_ = living.front().key;
  unreadable_.clear();
  HeldFiles held = find_open(living);
  add_named(living.front(), held);
  for (auto& [id, one] : held)  // the one that had it first, while that lives
    if (const auto before = known_.find(id); before != known_.end() && lives(living, before->second.process))
      one.process = before->second.process;
  std::map<ProcessKey, std::vector<File>> found = count(living, held);
  add_segments(living, found);
  known_ = std::move(held);

  std::map<ProcessKey, Files> now;
  for (const Process& process : living) {
    Files files = std::move(found[process.key]);
    std::ranges::sort(
        *files, [](const File& a, const File& b) { return std::tie(b.bytes, a.name) < std::tie(a.bytes, b.name); });
    if (files->empty() && unreadable_.contains(process.key)) files.reset();
    const auto before = reported_.find(process.key);
    if (before == reported_.end() ? !files || !files->empty() : before->second != files)
      changes.emplace_back(process.key, files);
    now[process.key] = std::move(files);
  }
  reported_ = std::move(now);
  gap_ns_ = changes.empty() ? std::min(2 * gap_ns_, kLongestGapNs) : kGapNs;
  const std::int64_t now_ns = monotonic_ns(), cost_ns = thread_cpu_ns() - begin_cpu_ns;
  next_ns_ = now_ns + std::max(gap_ns_, kCostsBetween * cost_ns);
  next_grown_ns_ = now_ns + kCostsBetweenGrown * cost_ns;
  return changes;
}

LeftFiles UnmappedReader::left_behind() {
  HeldFiles held;
  add_named({.key = first_, .pid = getpid()}, held);
  std::map<ProcessKey, std::vector<File>> segments;
  add_segments({{.key = first_}}, segments);
  LeftFiles left;
  std::int64_t largest_bytes = 0;
  const auto add_file = [&](const std::string& name, std::int64_t bytes) {
    if (bytes <= 0) return;
    ++left.count;
    left.bytes += bytes;
    if (bytes <= largest_bytes) return;
    largest_bytes = bytes;
    left.largest = name;
  };
  for (const File& segment : segments[first_]) add_file(segment.name, segment.bytes);
  for (const auto& [id, one] : held) add_file(one.file.path, one.file.memory_bytes);
  return left;
}

void UnmappedReader::note_made(const SharedFileId& id, ProcessKey process) {
  if (made_.try_emplace(id, process).second) made_by_.insert(process);
}

bool UnmappedReader::depends_on(ProcessKey key) const {
  const auto counts = [](const Files& files) { return files && !files->empty(); };
  const auto found = reported_.find(key);
  const bool is_any =
      !made_.empty() || std::ranges::any_of(reported_, [&](const auto& entry) { return counts(entry.second); });
  const bool inherits = key == first_ && is_any;
  return inherits || made_by_.contains(key) || (found != reported_.end() && counts(found->second));
}

nlohmann::json unmapped_payload(const UnmappedReader::Files& files) {
  if (!files) return {{"bytes", nullptr}};
  std::int64_t bytes = 0;
  auto named = nlohmann::json::array();
  for (const UnmappedReader::File& file : *files) {
    bytes += file.bytes;
    if (named.size() < kNamedFiles)
      named.push_back({{"name", file.name},
                       {"bytes", file.bytes},
                       {"major", file.id.device_major},
                       {"minor", file.id.device_minor},
                       {"inode", file.id.inode}});
  }
  return {{"bytes", bytes}, {"count", files->size()}, {"files", std::move(named)}};
}

}  // namespace whyrss
