#include "collect/start/shared_session.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "collect/read/process_presence.h"
#include "procfs/process_stat.h"
#include "recording/manifest.h"
#include "support/clock.h"

namespace whyrss {
namespace {

constexpr int kMostSuffixes = 1000;
constexpr std::int64_t kSoonNs = 2'000'000'000;     // until a collector that has just begun has written its manifest
constexpr std::int64_t kAttachNs = 10'000'000'000;  // as long as the shim waits for its collector
constexpr useconds_t kRetryUs = 5000;

std::string gate_path(const std::string& directory) { return directory + "/join"; }

// Only a living collector holds it.
bool is_locked(const std::string& directory) {
  const Fd lock(open((directory + "/lock").c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  return lock && flock(lock.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

// A collector makes the lock file before it has the lock, and its manifest later. Older ones are left over.
bool has_just_begun(const std::string& directory) {
  struct stat lock {
  }, manifest{};
  if (lstat((directory + "/lock").c_str(), &lock) != 0 || !S_ISREG(lock.st_mode)) return false;
  return lstat((directory + "/manifest.json").c_str(), &manifest) != 0 &&
         time(nullptr) - lock.st_ctime <= kSoonNs / 1'000'000'000;
}

bool is_locked_soon(const std::string& directory) {
  const std::int64_t deadline_ns = monotonic_ns() + kSoonNs;
  while (!is_locked(directory)) {
    if (!has_just_begun(directory) || monotonic_ns() >= deadline_ns) return false;
    usleep(kRetryUs);
  }
  return true;
}

bool is_own_directory(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid();
}

// Of a collector that has just begun nothing may be written yet.
std::optional<Manifest> running_manifest(const std::string& directory) {
  const std::int64_t deadline_ns = monotonic_ns() + kSoonNs;
  do {
    const auto text = read_file(directory + "/manifest.json");
    const auto manifest = text ? parse_manifest(*text, directory) : Result<Manifest>(Error{});
    if (manifest && !manifest->pool_path.empty())
      return manifest->state == "recording" && is_of_this_host(*manifest) ? std::optional(*manifest) : std::nullopt;
    usleep(kRetryUs);
  } while (is_locked(directory) && monotonic_ns() < deadline_ns);
  return std::nullopt;
}

std::optional<JoinedSession> join_directory(const std::string& directory) {
  if (!is_locked_soon(directory)) return std::nullopt;
  const auto manifest = running_manifest(directory);
  if (!manifest) return std::nullopt;
  const Fd gate(open(gate_path(directory).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!gate || flock(gate.get(), LOCK_EX) != 0) return std::nullopt;
  struct stat status {};
  if (fstat(gate.get(), &status) != 0 || status.st_size > 0 || !is_locked(directory)) return std::nullopt;
  Fd pool(open(manifest->pool_path.c_str(), O_RDWR | O_CLOEXEC));
  if (!pool) return std::nullopt;
  return JoinedSession{.value = fmt::format("{}:{}", manifest->session, manifest->pool_path),
                       .pool_path = manifest->pool_path,
                       .pool = std::move(pool)};
}

}  // namespace

bool is_shared_output(const std::string& output) {
  for (std::size_t i = 0; i + 1 < output.size(); ++i)
    if (output[i] == '%' && output[++i] == 'j') return true;
  return false;
}

std::optional<JoinedSession> join_session(const std::string& path, const std::string& own) {
  std::string candidate = path;
  for (int suffix = 1; suffix < kMostSuffixes && candidate != own && is_own_directory(candidate); ++suffix) {
    if (auto joined = join_directory(candidate)) return joined;
    candidate = fmt::format("{}.{}", path, suffix);
  }
  return std::nullopt;
}

void wait_until_attached(const JoinedSession& joined, pid_t pid) {
  const std::int64_t deadline_ns = monotonic_ns() + kAttachNs;
  while (monotonic_ns() < deadline_ns) {
    const auto maps = read_file(fmt::format("/proc/{}/maps", pid));
    if (!maps || maps->empty() || maps->find(joined.pool_path) != std::string::npos) return;
    usleep(kRetryUs);
  }
}

SessionGate SessionGate::open(const std::string& recording_directory, pid_t target) {
  SessionGate gate;
  gate.file_ = Fd(::open(gate_path(recording_directory).c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  const pid_t leader = getsid(target);
  const auto ticks = leader > 0 && leader != target ? start_ticks_of(leader) : std::nullopt;
  if (!gate.file_ || !ticks) return gate;
  gate.leader_ = leader;
  gate.leader_ticks_ = *ticks;
  return gate;
}

bool SessionGate::expects_more() const {
  if (leader_ == 0) return false;
  const auto text = read_line_file(fmt::format("/proc/{}/stat", leader_));
  const auto stat = text ? parse_process_stat(*text) : std::nullopt;
  return stat && stat->start_ticks == leader_ticks_ && !stat->has_ended();
}

bool SessionGate::close(const PoolFile& pool) {
  if (!file_ || flock(file_.get(), LOCK_EX) != 0) return true;  // no locks here: no command could join
  const bool is_joined = pool.is_in_use();
  if (!is_joined) write_fully(file_.get(), "closed\n");
  flock(file_.get(), LOCK_UN);
  return !is_joined;
}

}  // namespace whyrss
