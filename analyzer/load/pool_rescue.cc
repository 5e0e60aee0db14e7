#include "load/pool_rescue.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "load/pool_place.h"
#include "support/dead_socket.h"
#include "support/file.h"
#include "support/page_size.h"

namespace whyrss {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRescued = "pool";

// Of all processes, in whatever namespace: one that still has the pool mapped can write into it.
bool is_mapped(const FileId& pool) {
  const std::string wanted =
      fmt::format(" {:02x}:{:02x} {} ", major(pool.device), minor(pool.device), pool.inode);  // proc_pid_maps(5)
  std::error_code error;
  for (auto entry = fs::directory_iterator("/proc", error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const auto maps = read_file("/proc/" + name + "/maps");
    if (maps && maps->find(wanted) != std::string::npos) return true;
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

bool copy_into(const Folder& recording, const Fd& pool) {
  const std::string unfinished = fmt::format("{}.{}", kRescued, getpid());
  recording.remove(unfinished);  // of a report that was killed
  const auto to = recording.create_file(unfinished);
  if (!to) return false;
  const bool copied = copy_sparse(pool, *to, static_cast<off_t>(status_of(pool).size_bytes)) &&
                      recording.rename(unfinished, kRescued).ok();
  if (!copied) recording.remove(unfinished);
  return copied;
}

// Why this user may not take what is left; "" when they may.
std::string refusal(const Folder& recording) {
  const EntryStatus folder = recording.status(), manifest = recording.status_of("manifest.json");
  for (const EntryStatus& entry : {folder, manifest})
    if (entry.owner != geteuid()) return fmt::format("only who recorded it may, the user with the id {}", entry.owner);
  return recording.is_private() ? "" : fmt::format("others may write into {}", recording.path());
}

std::string not_read(const std::string& path, const std::string& why) {
  return fmt::format("what the collector left in {} was not read: {}", path, why);
}

Leftovers read_rescued(const Folder& recording, const Manifest& manifest) {
  if (recording.status_of(kRescued).kind == EntryKind::missing) return {};
  const auto file = recording.open_file(kRescued);
  auto copy = file ? PoolCopy::read(*file, manifest.session) : Result<PoolCopy>(Error{file.error()});
  if (!copy) return {.pool = {}, .why_not = not_read(recording.path_of(kRescued), copy.error())};
  return {.pool = std::move(*copy), .why_not = {}};
}

Leftovers take_from(const Folder& shared_memory, const std::string& name, const Folder& recording,
                    const Manifest& manifest) {
  const auto refused = [&](const std::string& why) {
    return Leftovers{.pool = {}, .why_not = not_read(shared_memory.path_of(name), why)};
  };
  if (const std::string why = refusal(recording); !why.empty()) return refused(why);
  const auto file = open_pool(shared_memory, name);
  if (!file) return refused(file.error());
  auto copy = PoolCopy::read(*file, manifest.session);
  if (!copy) return refused(copy.error());
  const FileId identity = status_of(*file).identity;
  if (!is_mapped(identity) && copy_into(recording, *file)) shared_memory.remove(name, identity);
  return {.pool = std::move(*copy), .why_not = {}};
}

// Of whichever collector: one that lives listens, and keeps its own.
void remove_sockets(const Folder& recording, const Folder& shared_memory, const std::string& name) {
  if (!refusal(recording).empty()) return;
  remove_dead_socket(shared_memory, name + ".memory");
  remove_dead_socket(recording, "memory");
}

}  // namespace

Leftovers take_leftovers(const Folder& recording, const Manifest& manifest, bool is_here) {
  Leftovers found;
  const auto name = shared_pool_name(manifest);
  const auto shared_memory = open_shared_memory();
  // In this order: another report may be moving it now.
  if (is_here && name && shared_memory) {
    if (shared_memory->status_of(*name).kind != EntryKind::missing)
      found = take_from(*shared_memory, *name, recording, manifest);
    remove_sockets(recording, *shared_memory, *name);
  }
  if (found.pool) return found;
  Leftovers rescued = read_rescued(recording, manifest);
  if (rescued.pool || found.why_not.empty()) found = std::move(rescued);
  const std::string& path = manifest.pool_path;
  const bool was_in_memory = path.starts_with("/proc/"), was_in_recording = path.ends_with("/pool");
  if (is_here && !found.pool && found.why_not.empty() && !name && !path.empty() && !was_in_memory && !was_in_recording)
    found.why_not = not_read(path, "no recording keeps its events there");
  return found;
}

}  // namespace whyrss
