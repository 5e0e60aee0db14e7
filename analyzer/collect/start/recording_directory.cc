#include "collect/start/recording_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <vector>

#include "collect/start/output_parent.h"

namespace whyrss {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxSuffix = 100'000;
constexpr int kLockTries = 5;
constexpr useconds_t kLockAgainUs = 2000;
// A recording holds names of files and functions, and command lines.
constexpr mode_t kMode = 0700;

std::string first_of_environment(std::initializer_list<const char*> names, const std::string& otherwise) {
  for (const char* name : names)
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') return value;
  return otherwise;
}

// Of a shell and all that it starts.
std::string session_of(pid_t pid) { return std::to_string(std::max(getsid(pid), 0)); }

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

// Nothing when another process holds it.
std::optional<Fd> lock_directory(const std::string& path) {
  Fd lock(open((path + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (!lock) return std::nullopt;
  // A file system without locks (some NFS mounts) gives ENOLCK: then the mkdir alone has to do. Who only asks whether
  // it is locked holds it for a moment.
  for (int tries = 1; flock(lock.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; ++tries) {
    if (tries == kLockTries) return std::nullopt;
    usleep(kLockAgainUs);
  }
  return lock;
}

bool is_lock(const fs::directory_entry& entry) { return entry.path().filename() == "lock"; }

bool holds_only_the_lock(const std::string& path) {
  std::error_code error;
  const fs::directory_iterator entries(path, error);
  return !error && std::ranges::all_of(entries, is_lock);
}

// Makes the directory of the recording, or checks the one that is there.
Status make_or_check(const Folder& parent, const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  if (mkdirat(parent.fd(), name.c_str(), kMode) == 0) return Done{};
  if (errno != EEXIST) return system_error("cannot create the output directory", path);
  const EntryStatus status = parent.status_of(name);
  if (status.kind == EntryKind::link) return Error{fmt::format("{} is a symbolic link: choose another -o", path)};
  if (status.kind != EntryKind::directory) return Error{fmt::format("{} is not a directory: choose another -o", path)};
  if (status.owner != geteuid())
    return Error{fmt::format("{} belongs to the user with the id {}: choose another -o", path, status.owner)};
  return Done{};
}

// What it held was made by this user's leave; what comes is for this user alone.
void close_to_others(const Folder& parent, const std::string& path) {
  const auto folder = parent.open_folder(fs::path(path).filename().string());
  if (folder) static_cast<void>(folder->set_mode(kMode));  // refused by file systems without modes
}

// The caller holds its lock, which stays.
Status clear_old_recording(const std::string& path) {
  std::error_code error;
  std::vector<fs::path> old;
  for (const auto& entry : fs::directory_iterator(path, error))
    if (!is_lock(entry)) old.push_back(entry.path());
  for (auto entry = old.begin(); entry != old.end() && !error; ++entry) fs::remove_all(*entry, error);
  if (error) return Error{fmt::format("cannot replace {}: {}", path, error.message())};
  return Done{};
}

}  // namespace

std::string without_tokens(const std::string& text) {
  std::string escaped;
  for (const char letter : text) escaped += letter == '%' ? "%%" : std::string(1, letter);
  return escaped;
}

std::string expand_tokens(const std::string& pattern, pid_t pid) {
  std::string result;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char token = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (token == 'p') {
      result += std::to_string(pid);
    } else if (token == 'h') {
      result += host_name();
    } else if (token == 'j') {
      result += first_of_environment({"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID"}, session_of(pid));
    } else if (token == 'r') {
      result += first_of_environment({"SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "RANK"}, "0");
    } else if (token == '%') {
      result += '%';
    } else {
      result += pattern[i];
      continue;
    }
    ++i;
  }
  return result;
}

std::string absolute_path(const std::string& path) {
  std::error_code error;
  fs::path absolute = fs::absolute(path, error).lexically_normal();
  if (absolute.has_parent_path() && !absolute.has_filename()) absolute = absolute.parent_path();  // "dir/"
  return error ? path : absolute.string();
}

Result<RecordingDirectory> make_recording_directory(const std::string& path, WhenTaken when_taken) {
  std::error_code error;
  const auto parent = open_output_parent(path);
  if (!parent) return Error{parent.error()};
  std::string candidate = path;
  for (int suffix = 1; suffix < kMaxSuffix; ++suffix) {
    if (const Status usable = make_or_check(*parent, candidate); !usable) return Error{usable.error()};
    const bool empty = fs::is_empty(candidate, error);
    if (error) return Error{fmt::format("cannot use the output directory {}: {}", candidate, error.message())};
    const bool replaces = !empty && when_taken == WhenTaken::replace;
    if (!empty && when_taken == WhenTaken::refuse)
      return Error{fmt::format("{} exists already: replace it with -f, or choose another -o", candidate)};
    if (replaces && !fs::exists(candidate + "/manifest.json", error))
      return Error{
          fmt::format("{} is not empty and is no whyrss recording: not replaced; choose another -o", candidate)};
    if (empty || replaces) {
      if (access(candidate.c_str(), W_OK | X_OK) != 0)
        return system_error("cannot write to the output directory", candidate);
      auto lock = lock_directory(candidate);
      if (!lock && replaces)
        return Error{fmt::format("{} is a recording that is still being written: choose another -o", candidate)};
      if (lock && replaces) {
        if (const Status cleared = clear_old_recording(candidate); !cleared) return Error{cleared.error()};
      }
      // Another one may have come, and even gone, since it was found empty.
      if (lock && holds_only_the_lock(candidate)) {
        close_to_others(*parent, candidate);
        return RecordingDirectory{.path = candidate, .lock = std::move(*lock)};
      }
      if (when_taken != WhenTaken::choose_next)
        return Error{fmt::format("{} is being used by another whyrss: choose another -o", candidate)};
    }
    candidate = fmt::format("{}.{}", path, suffix);
  }
  return Error{fmt::format("{}.1 to {}.{} all exist: clean up or choose another directory", path, path, kMaxSuffix)};
}

}  // namespace whyrss
