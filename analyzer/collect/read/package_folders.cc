#include "collect/read/package_folders.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

#include "support/file.h"
#include "support/proc_path.h"
#include "support/text.h"

namespace whyrss {
namespace {

constexpr std::size_t kMostFolders = 64;  // of a PYTHONPATH
constexpr std::size_t kMostEntries = 20'000;
constexpr std::size_t kMostKnown = 1024;

bool names_package(std::string_view name) { return name.ends_with(".dist-info") || name.ends_with(".egg-info"); }

// `root`: of the process.
bool holds_packages(const std::string& root, const std::string& folder) {
  std::error_code error;
  std::size_t count = 0;
  std::filesystem::directory_iterator entries(root + folder, error);
  for (; !error && entries != std::filesystem::directory_iterator() && ++count < kMostEntries; entries.increment(error))
    if (names_package(entries->path().filename().string())) return true;
  return false;
}

}  // namespace

const std::vector<std::string>& PackageFolders::of(pid_t pid, std::string_view pythonpath) {
  const std::string working = read_link(proc_path(pid, "cwd"));
  if (known_.size() > kMostKnown) known_.clear();
  const auto [entry, is_new] = known_.try_emplace(fmt::format("{}\n{}", working, pythonpath));
  std::vector<std::string>& folders = entry->second;
  if (!is_new) return folders;
  const std::string root = proc_path(pid, "root");
  std::size_t count = 0;
  for (const std::string& word : split(pythonpath, ':')) {
    if (word.empty() || ++count > kMostFolders) continue;
    std::string folder = (std::filesystem::path(working) / word).lexically_normal().string();
    if (folder.ends_with('/')) folder.pop_back();
    if (!folder.empty() && std::ranges::find(folders, folder) == folders.end() && holds_packages(root, folder))
      folders.push_back(std::move(folder));
  }
  return folders;
}

}  // namespace whyrss
