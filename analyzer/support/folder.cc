#include "support/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <string_view>

#include "support/text.h"

namespace whyrss {
namespace {

constexpr int kReadFlags = O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC;
constexpr mode_t kFileMode = 0600;
// One that may be passed through but not listed (0711) will do.
constexpr int kFolderFlags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

EntryKind kind_of(mode_t mode) {
  if (S_ISREG(mode)) return EntryKind::file;
  if (S_ISDIR(mode)) return EntryKind::directory;
  if (S_ISLNK(mode)) return EntryKind::link;
  return S_ISSOCK(mode) ? EntryKind::socket : EntryKind::other;
}

EntryStatus entry_of(const struct stat& status) {
  return {.kind = kind_of(status.st_mode),
          .identity = {.device = status.st_dev, .inode = status.st_ino},
          .size_bytes = status.st_size > 0 ? static_cast<std::uint64_t>(status.st_size) : 0,
          .owner = status.st_uid,
          .group = status.st_gid,
          .mode = status.st_mode & 07777,
          .links = status.st_nlink,
          .changed_s = status.st_ctim.tv_sec};
}

// Where the kernel is older than 5.6, or a sandbox refuses calls that it does not know.
bool must_walk(int error) { return error == ENOSYS || error == EPERM || error == EAGAIN; }

// Component by component, each relative to the descriptor of the one before.
int walk_and_open(int directory, std::string_view name, int flags) {
  Fd above;
  while (true) {
    const std::string part(take_until(name, '/'));
    if (part.empty() || part == "..") {
      errno = ENOENT;
      return -1;
    }
    const int from = above ? above.get() : directory;
    if (name.empty()) return openat(from, part.c_str(), flags, kFileMode);
    Fd next(openat(from, part.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!next) return -1;
    above = std::move(next);
  }
}

Fd open_beneath(int directory, const std::string& name, int flags) {
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags);
  how.mode = (flags & O_CREAT) != 0 ? kFileMode : 0;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
  const long opened = syscall(SYS_openat2, directory, name.c_str(), &how, sizeof how);
  if (opened >= 0 || !must_walk(errno)) return Fd(static_cast<int>(opened));
  return Fd(walk_and_open(directory, name, flags));
}

}  // namespace

EntryStatus status_of(const Fd& fd) {
  struct stat status {};
  return fstat(fd.get(), &status) == 0 ? entry_of(status) : EntryStatus{};
}

Result<Folder> Folder::open(const std::string& path) {
  Fd fd(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return system_error("cannot open", path);
  return Folder(std::move(fd), path);
}

Result<Folder> Folder::open_folder(const std::string& name) const {
  Fd fd = open_beneath(this->fd(), name, kFolderFlags);
  if (!fd) return system_error("cannot open", path_of(name));
  return Folder(std::move(fd), path_of(name));
}

EntryStatus Folder::status() const { return fd_ ? whyrss::status_of(*fd_) : EntryStatus{}; }

EntryStatus Folder::status_of(const std::string& name) const {
  struct stat status {};
  return fstatat(fd(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 ? entry_of(status) : EntryStatus{};
}

bool Folder::is_private() const {
  const EntryStatus own = status();
  return own.kind == EntryKind::directory && own.owner == geteuid() && (own.mode & (S_IWGRP | S_IWOTH)) == 0;
}

Result<std::vector<std::string>> Folder::list() const {
  struct Close {
    void operator()(DIR* directory) const { closedir(directory); }
  };
  Fd own(openat(fd(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::unique_ptr<DIR, Close> directory(own ? fdopendir(own.get()) : nullptr);
  if (!directory) return system_error("cannot list", path_);
  own.release();
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(directory.get()))
    if (const std::string_view name = entry->d_name; name != "." && name != "..") names.emplace_back(name);
  if (errno != 0) return system_error("cannot list", path_);
  std::ranges::sort(names);
  return names;
}

Result<Folder> Folder::make_folder(const std::string& name, unsigned mode) const {
  if (mkdirat(fd(), name.c_str(), mode) != 0) return system_error("cannot create", path_of(name));
  return open_folder(name);
}

bool Folder::set_mode(unsigned mode) const {
  const Fd own(openat(fd(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return own && fchmod(own.get(), mode) == 0;
}

std::string Folder::link_target(const std::string& name) const {
  std::array<char, PATH_MAX> target{};
  const ssize_t size = readlinkat(fd(), name.c_str(), target.data(), target.size());
  return size > 0 ? std::string(target.data(), static_cast<std::size_t>(size)) : "";
}

Result<Fd> Folder::open_file(const std::string& name) const {
  const Error other{fmt::format("{} is no regular file: it was not read", path_of(name))};
  // Before it is opened: a device may start to work by that alone.
  const EntryKind kind = status_of(name).kind;
  if (kind != EntryKind::file && kind != EntryKind::missing) return other;
  Fd fd = open_beneath(this->fd(), name, kReadFlags);
  if (!fd) return system_error("cannot open", path_of(name));
  if (whyrss::status_of(fd).kind != EntryKind::file) return other;
  return fd;
}

Result<Fd> Folder::create_file(const std::string& name) const {
  Fd fd = open_beneath(this->fd(), name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC);
  if (!fd) return system_error("cannot create", path_of(name));
  static_cast<void>(fchmod(fd.get(), kFileMode));  // refused by file systems without modes
  return fd;
}

Status Folder::rename(const std::string& from, const std::string& to) const {
  if (renameat(fd(), from.c_str(), fd(), to.c_str()) == 0) return Done{};
  return system_error("cannot rename to", path_of(to));
}

bool Folder::remove(const std::string& name, const FileId& identity) const {
  const EntryStatus now = status_of(name);
  return now.kind != EntryKind::missing && now.identity == identity && unlinkat(fd(), name.c_str(), 0) == 0;
}

void Folder::remove(const std::string& name) const { unlinkat(fd(), name.c_str(), 0); }

}  // namespace whyrss
