#include "ingest/pool_rescue.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "support/file.h"

namespace whyrss {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPageBytes = 4096;

// Of all processes, in whatever namespace: one that still has the pool mapped can write into it.
bool is_mapped(const std::string& path) {
  std::error_code error;
  for (auto entry = fs::directory_iterator("/proc", error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const auto maps = read_file("/proc/" + name + "/maps");
    if (maps && maps->find(path) != std::string::npos) return true;
  }
  return false;
}

// Pages that were never used stay holes.
bool copy_sparse(const Fd& from, const Fd& to, off_t size_bytes) {
  std::array<char, kPageBytes> page;
  for (off_t at = 0; at < size_bytes; at += kPageBytes) {
    const ssize_t got = pread(from.get(), page.data(), page.size(), at);
    if (got <= 0) return false;
    const auto bytes = static_cast<std::size_t>(got);
    const bool is_empty = std::all_of(page.begin(), page.begin() + got, [](char byte) { return byte == 0; });
    if (!is_empty && pwrite(to.get(), page.data(), bytes, at) != got) return false;
  }
  return ftruncate(to.get(), size_bytes) == 0 && fsync(to.get()) == 0;
}

bool copy_file(const std::string& from_path, const std::string& to_path) {
  const Fd from(open(from_path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  const std::string unfinished = fmt::format("{}.{}", to_path, getpid());
  const Fd to(open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  struct stat status {};
  const bool copied = from && to && fstat(from.get(), &status) == 0 && copy_sparse(from, to, status.st_size) &&
                      rename(unfinished.c_str(), to_path.c_str()) == 0;
  if (to && !copied) unlink(unfinished.c_str());
  return copied;
}

}  // namespace

std::string rescued_pool_path(const std::string& recording_dir) { return recording_dir + "/pool"; }

void rescue_pool(const std::string& recording_dir, const std::string& pool_path) {
  if (is_mapped(pool_path)) return;
  if (copy_file(pool_path, rescued_pool_path(recording_dir))) unlink(pool_path.c_str());
}

}  // namespace whyrss
