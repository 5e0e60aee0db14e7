#include "collect/start/pool_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "support/clock.h"
#include "support/text.h"

namespace whyrss {
namespace {

// File systems on which a store into reserved space neither blocks nor fails (linux/magic.h).
constexpr std::uint64_t kTmpfs = 0x01021994;
constexpr std::array<std::uint64_t, 3> kSafeFileSystems{0xEF53 /* ext4 */, 0x58465342 /* xfs */, kTmpfs};

// Less when the job's limits or the container's /dev/shm (often 64 MiB) leave no room for the default.
constexpr std::array<std::uint32_t, 3> kChunkCounts{trace::kDefaultChunkCount, 256, 64};

bool is_safe_file_system(const std::string& directory) {
  struct statfs info {};
  if (statfs(directory.c_str(), &info) != 0) return false;
  for (const std::uint64_t magic : kSafeFileSystems)
    if (static_cast<std::uint64_t>(info.f_type) == magic) return true;
  return false;
}

// Whether all of it will fit, and the file can take its space page by page: in memory, not on a disk.
bool can_grow(int fd, std::uint64_t size_bytes) {
  struct statfs info {};
  if (fstatfs(fd, &info) != 0 || static_cast<std::uint64_t>(info.f_type) != kTmpfs) return false;
  const bool unlimited = info.f_blocks == 0;
  return unlimited ||
         static_cast<std::uint64_t>(info.f_bavail) * static_cast<std::uint64_t>(info.f_bsize) >= size_bytes;
}

bool reserve_all(int fd, std::uint64_t size_bytes) {
  errno = posix_fallocate(fd, 0, static_cast<off_t>(size_bytes));
  return errno == 0;
}

// Opened by name: the kernel does not count what memfd_create itself gives as open for writing, and is_in_use() relies
// on the count.
Fd make_anonymous_file() {
  const Fd made(memfd_create("whyrss:pool", MFD_CLOEXEC));
  return Fd(made ? open(fmt::format("/proc/self/fd/{}", made.get()).c_str(), O_RDWR | O_CLOEXEC) : -1);
}

// The kernel marks the word when the calling thread dies. In place of the list of the C library, whose robust mutexes
// nothing here uses.
void mark_at_death(std::atomic<std::uint32_t>& word) {
  static robust_list entry{};
  static robust_list_head head{};
  head = {.list = {.next = &entry},
          .futex_offset = reinterpret_cast<char*>(&word) - reinterpret_cast<char*>(&entry),
          .list_op_pending = nullptr};
  entry.next = &head.list;
  word.store(static_cast<std::uint32_t>(gettid()));
  syscall(SYS_set_robust_list, &head, sizeof(head));
}

}  // namespace

Result<PoolFile> PoolFile::create(trace::SessionId session, const std::string& recording_directory, Space space) {
  const std::string name = hex32(session.high, session.low);
  std::string last_error = "no place for it";
  for (const std::uint32_t chunk_count : kChunkCounts) {
    const std::uint64_t size_bytes = trace::pool_bytes(chunk_count, trace::kDefaultSlotCount);
    for (const std::string& directory : {std::string("/dev/shm"), recording_directory, std::string()}) {
      PoolFile pool;
      if (directory.empty()) {
        pool.fd_ = make_anonymous_file();
        pool.path_ = fmt::format("/proc/{}/fd/{}", getpid(), pool.fd_.get());
      } else {
        if (!is_safe_file_system(directory)) continue;
        pool.path_ = directory == recording_directory ? directory + "/pool" : directory + "/whyrss." + name;
        pool.fd_ = Fd(open(pool.path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
        pool.unlink_ = static_cast<bool>(pool.fd_);
      }
      if (!pool.fd_ || ftruncate(pool.fd_.get(), static_cast<off_t>(size_bytes)) != 0) {
        last_error = system_error("cannot make", pool.path_).message;
        continue;
      }
      auto mapping = Mapping::of(pool.fd_, size_bytes, pool.path_);
      if (!mapping) {
        last_error = mapping.error();
        continue;
      }
      pool.mapping_ = std::move(*mapping);
      const auto bare_chunks = pool.reserve(chunk_count, space);
      if (!bare_chunks) {
        last_error = bare_chunks.error();
        continue;
      }
      pool.view_ = format_pool(pool.mapping_.address(), chunk_count, trace::kDefaultSlotCount, session, *bare_chunks);
      return pool;
    }
  }
  return Error{fmt::format("no shared memory for the event pool: {}", last_error)};
}

// Returns for how many chunks no space is reserved yet.
Result<std::uint32_t> PoolFile::reserve(std::uint32_t chunk_count, Space space) {
  if (space == Space::by_need && can_grow(fd_.get(), size_bytes())) {
    const std::uint32_t bare_chunks = chunk_count - std::min(trace::kReadyChunks, chunk_count);
    const std::uint64_t reserved = trace::reserved_bytes(chunk_count, trace::kDefaultSlotCount, bare_chunks);
    if (trace::reserve_pages(mapping_.address(), reserved)) return bare_chunks;
  }
  if (!reserve_all(fd_.get(), size_bytes())) return system_error("cannot reserve", path_);
  return std::uint32_t{0};
}

PoolFile::PoolFile(PoolFile&& other) noexcept
    : fd_(std::move(other.fd_)),
      mapping_(std::move(other.mapping_)),
      view_(std::exchange(other.view_, {})),
      path_(std::move(other.path_)),
      unlink_(std::exchange(other.unlink_, false)) {}

PoolFile& PoolFile::operator=(PoolFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(mapping_, other.mapping_);
  std::swap(view_, other.view_);
  std::swap(path_, other.path_);
  std::swap(unlink_, other.unlink_);
  return *this;
}

void PoolFile::become_reader() const {
  trace::PoolHeader& header = *view_.header;
  mark_at_death(header.reader_life);
  // A process that starts before our first round must not take us for dead.
  header.reader_beat_ns.store(static_cast<std::uint64_t>(monotonic_ns()));
  header.reader_pid.store(static_cast<std::uint32_t>(getpid()));
}

// The kernel gives a write lease only to a process that alone has the file open: fcntl(2). Another one that opens it in
// that moment waits for the end of the lease, and the kernel signals us, which is ignored (collect/loop/detach).
bool PoolFile::is_in_use() const {
  if (!fd_) return false;
  if (fcntl(fd_.get(), F_SETLEASE, F_WRLCK) != 0) return errno == EAGAIN;
  fcntl(fd_.get(), F_SETLEASE, F_UNLCK);
  return false;
}

bool PoolFile::is_mapped_by(pid_t pid) const {
  struct stat file {};
  if (!fd_ || fstat(fd_.get(), &file) != 0) return false;
  // As a line of maps has it between the offset and the path.
  const std::string mark = fmt::format(" {:02x}:{:02x} {} ", major(file.st_dev), minor(file.st_dev), file.st_ino);
  const auto maps = read_file(fmt::format("/proc/{}/maps", pid));
  return maps && maps->find(mark) != std::string::npos;
}

std::vector<pid_t> PoolFile::users() const {
  std::vector<pid_t> pids;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const auto pid = parse_number<pid_t>(entry.path().filename().string());
    if (pid && *pid != getpid() && is_mapped_by(*pid)) pids.push_back(*pid);
  }
  return pids;
}

PoolFile::~PoolFile() {
  if (unlink_) unlink(path_.c_str());
}

}  // namespace whyrss
