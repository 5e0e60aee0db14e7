#include "collect/read/file_sizes.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "support/page_size.h"

namespace whyrss {
namespace {

constexpr std::uint64_t kNamedPages = 1024 * 1024 / kPageBytes;
constexpr std::size_t kMostFiles = 1000;  // of one process: each is asked for by its path

struct Seen {
  std::uint64_t pages = 0;  // of the page cache
  std::vector<const trace::WalkVma*> mappings;
};

// As the process sees its path; -1: it is another file by now, or none.
std::int64_t size_of(const std::string& path, std::uint64_t inode, pid_t pid) {
  struct stat status {};
  if (stat(fmt::format("/proc/{}/root{}", pid, path).c_str(), &status) != 0) return -1;
  return S_ISREG(status.st_mode) && status.st_ino == inode ? status.st_size : -1;
}

// Pages behind the end of the file cannot be touched.
std::int64_t mapped_bytes(const std::vector<const trace::WalkVma*>& mappings, std::int64_t size_bytes) {
  const std::uint64_t end = (static_cast<std::uint64_t>(size_bytes) + kPageBytes - 1) / kPageBytes * kPageBytes;
  std::uint64_t sum = 0;
  for (const trace::WalkVma* vma : mappings)
    if (vma->file_offset < end) sum += std::min(vma->end - vma->start, end - vma->file_offset);
  return static_cast<std::int64_t>(sum);
}

bool is_writable(const std::vector<const trace::WalkVma*>& mappings) {
  constexpr std::uint32_t kWritesToFile = trace::VmaPerms::write | trace::VmaPerms::shared;
  return std::ranges::any_of(mappings,
                             [](const trace::WalkVma* vma) { return (vma->perms & kWritesToFile) == kWritesToFile; });
}

}  // namespace

std::optional<nlohmann::json> MappedFileSizes::changes(const PageWalk& walk, const BackingResolver& resolver, pid_t pid,
                                                       bool anew) {
  std::map<std::pair<std::string, std::uint64_t>, Seen> files;
  for (const WalkedVma& vma : walk.vmas) {
    if (vma.vma.backing != trace::Backing::file) continue;
    if (!resolver.is_local(vma.vma.device_major, vma.vma.device_minor)) continue;
    Seen& file = files[{vma.path, vma.vma.inode}];
    file.mappings.push_back(&vma.vma);
    for (const trace::WalkRun& run : vma.runs)
      if (is_counted(run.bits) && (run.bits & trace::PageBits::file) != 0) file.pages += run.page_count;
  }
  auto list = nlohmann::json::array();
  for (const auto& [key, file] : files) {
    if (file.pages < kNamedPages) continue;
    const auto known = reported_.find(key);
    if (known == reported_.end() && reported_.size() >= kMostFiles) continue;
    Reported now;
    now.size_bytes = known == reported_.end() || anew ? size_of(key.first, key.second, pid) : known->second.size_bytes;
    if (now.size_bytes >= 0) now.mapped_bytes = mapped_bytes(file.mappings, now.size_bytes);
    now.is_writable = is_writable(file.mappings);
    if (known != reported_.end() && known->second == now) continue;
    reported_[key] = now;
    if (now.size_bytes < 0) continue;
    list.push_back({{"path", key.first}, {"size_bytes", now.size_bytes}, {"mapped_bytes", now.mapped_bytes}});
    if (now.is_writable) list.back()["writable"] = true;
  }
  if (list.empty()) return std::nullopt;
  return nlohmann::json{{"files", std::move(list)}};
}

}  // namespace whyrss
