#include "collect/read/shared_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <memory>
#include <set>

#include "support/text.h"

namespace whyrss {
namespace {

constexpr std::int64_t kBlockBytes = 512;  // of stx_blocks
constexpr std::size_t kMostNamed = 100'000;
constexpr int kDeepest = 8;

struct DirCloser {
  void operator()(DIR* directory) const { closedir(directory); }
};
using Directory = std::unique_ptr<DIR, DirCloser>;

bool is_dots(const char* name) { return name == std::string_view(".") || name == std::string_view(".."); }

// Asking a file on a network file system for its facts may take for ever. These places are in memory, or on disk.
bool may_be_in_memory(std::string_view path) {
  constexpr std::array<std::string_view, 4> kPlaces{"/memfd:", "/dev/shm/", "/run/", "/tmp/"};
  return std::ranges::any_of(kPlaces, [&](std::string_view place) { return path.starts_with(place); });
}

// The pool, what the library in a program keeps, and a recording that is written there.
bool is_ours(std::string_view path) { return path.starts_with("/memfd:whyrss") || path.starts_with("/dev/shm/whyrss"); }

// But for its path.
std::optional<SharedFile> facts_of(int directory, const char* name, int flags, pid_t pid, BackingResolver& resolver) {
  struct statx facts {};
  constexpr unsigned kWanted = STATX_TYPE | STATX_INO | STATX_BLOCKS | STATX_CTIME | STATX_BTIME;
  if (statx(directory, name, flags | AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, kWanted, &facts) != 0) return std::nullopt;
  if (!S_ISREG(facts.stx_mode) || !resolver.is_in_memory(facts.stx_dev_major, facts.stx_dev_minor, pid))
    return std::nullopt;
  const auto seconds = [](const statx_timestamp& time) {
    return static_cast<double>(time.tv_sec) + time.tv_nsec / 1e9;
  };
  const double changed_s = seconds(facts.stx_ctime);
  return SharedFile{.id = {facts.stx_dev_major, facts.stx_dev_minor, facts.stx_ino},
                    .path = {},
                    .memory_bytes = static_cast<std::int64_t>(facts.stx_blocks) * kBlockBytes,
                    .made_s = (facts.stx_mask & STATX_BTIME) != 0 ? seconds(facts.stx_btime) : changed_s,
                    .changed_s = changed_s};
}

bool is_word(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

pid_t number_in(std::string_view name, const std::set<pid_t>& pids) {
  for (std::size_t at = 0; at < name.size();) {
    const std::size_t begin = at;
    while (at < name.size() && is_word(name[at])) ++at;
    if (const auto number = parse_number<pid_t>(name.substr(begin, at - begin)); number && pids.contains(*number))
      return *number;
    at = std::max(at, begin + 1);
  }
  return 0;
}

// In one folder and in those below it: by their names alone only one level deep.
class NamedFiles {
 public:
  NamedFiles(pid_t pid, const SharedFileSigns& signs, BackingResolver& resolver)
      : pid_(pid), signs_(&signs), resolver_(&resolver) {}

  void search(const std::string& folder, pid_t by_folder, int depth) {
    const Directory directory(opendir(fmt::format("/proc/{}/root{}", pid_, folder).c_str()));
    if (!directory) return;
    while (const dirent* entry = readdir(directory.get())) {
      if (is_dots(entry->d_name) || found.size() >= kMostNamed) continue;
      const std::string path = fmt::format("{}/{}", folder, entry->d_name);
      if (is_ours(path)) continue;
      const pid_t named = by_folder != 0 ? by_folder : number_in(entry->d_name, signs_->pids);
      const bool is_worth = signs_->inodes.empty() ? named != 0 && depth == 0 : depth < kDeepest;
      if (entry->d_type == DT_DIR && is_worth) search(path, named, depth + 1);
      const bool is_known = signs_->inodes.contains(entry->d_ino);
      if (entry->d_type != DT_REG || (named == 0 && !is_known)) continue;
      auto file = facts_of(dirfd(directory.get()), entry->d_name, AT_SYMLINK_NOFOLLOW, pid_, *resolver_);
      // One that was there before is the job's once it was emptied, and not for being mapped.
      if (!file || (is_known ? file->changed_s : file->made_s) < signs_->since_s) continue;
      file->path = path;
      found.push_back({std::move(*file), named});
    }
  }

  std::vector<NamedSharedFile> found;

 private:
  pid_t pid_;
  const SharedFileSigns* signs_;
  BackingResolver* resolver_;
};

}  // namespace

std::optional<std::vector<SharedFile>> open_shared_files(pid_t pid, BackingResolver& resolver) {
  const Directory directory(opendir(fmt::format("/proc/{}/fd", pid).c_str()));
  if (!directory) return std::nullopt;
  std::map<SharedFileId, SharedFile> found;
  std::array<char, PATH_MAX> link{};
  while (const dirent* entry = readdir(directory.get())) {
    if (is_dots(entry->d_name)) continue;
    const int fd = dirfd(directory.get());
    const ssize_t length = readlinkat(fd, entry->d_name, link.data(), link.size());
    const std::string_view path(link.data(), static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
    if (!may_be_in_memory(path) || is_ours(path)) continue;
    auto file = facts_of(fd, entry->d_name, 0, pid, resolver);
    if (!file || file->memory_bytes == 0) continue;
    file->path = path;
    const SharedFileId id = file->id;
    found.try_emplace(id, std::move(*file));
  }
  std::vector<SharedFile> files;
  for (auto& [id, file] : found) files.push_back(std::move(file));
  return files;
}

std::optional<SharedFile> shared_file_at(pid_t pid, const std::string& path, BackingResolver& resolver) {
  const std::string place = fmt::format("/proc/{}/root{}", pid, path);
  auto file = facts_of(AT_FDCWD, place.c_str(), AT_SYMLINK_NOFOLLOW, pid, resolver);
  if (file) file->path = path;
  return file;
}

std::vector<NamedSharedFile> find_named_files(pid_t pid, const SharedFileSigns& signs, BackingResolver& resolver) {
  NamedFiles files(pid, signs, resolver);
  files.search("/dev/shm", 0, 0);
  return std::move(files.found);
}

// key shmid perms size cpid lpid nattch uid gid cuid cgid atime dtime ctime rss swap
std::vector<DetachedSegment> parse_detached_segments(std::string_view text) {
  constexpr std::size_t kKey = 0, kId = 1, kCreator = 4, kAttached = 6, kResident = 14, kSwapped = 15, kFields = 16;
  std::vector<DetachedSegment> segments;
  for (const std::string& line : split(text, '\n')) {
    std::string_view rest = line;
    std::array<std::int64_t, kFields> fields{};
    std::size_t count = 0;
    for (; count < kFields; ++count) {
      const auto value = parse_number<std::int64_t>(take_word(rest));
      if (!value) break;
      fields.at(count) = *value;
    }
    if (count < kFields || fields[kAttached] != 0 || fields[kResident] < 0 || fields[kSwapped] < 0) continue;
    segments.push_back({.name = fmt::format("/SYSV{:08x}", static_cast<std::uint32_t>(fields[kKey])),
                        .id = static_cast<std::uint64_t>(fields[kId]),
                        .creator = static_cast<pid_t>(fields[kCreator]),
                        .memory_bytes = fields[kResident] + fields[kSwapped]});
  }
  return segments;
}

void MappedParts::add(const std::vector<MapsEntry>& mappings) {
  for (const MapsEntry& mapping : mappings)
    if (mapping.inode != 0)
      parts_[{mapping.device_major, mapping.device_minor, mapping.inode}].emplace_back(
          mapping.file_offset, mapping.file_offset + (mapping.end - mapping.start));
}

std::int64_t MappedParts::bytes_of(const SharedFileId& id) const {
  const auto found = parts_.find(id);
  if (found == parts_.end()) return 0;
  auto parts = found->second;
  std::ranges::sort(parts);
  std::uint64_t sum = 0, until = 0;
  for (const auto& [begin, end] : parts) {
    if (end <= until) continue;
    sum += end - std::max(begin, until);
    until = end;
  }
  return static_cast<std::int64_t>(sum);
}

}  // namespace whyrss
