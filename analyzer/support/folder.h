// Files that another user may have put into place: opened relative to the descriptor of their directory, so that no
// other process can swap what lies above them, and never waited for, whatever they are.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "support/file.h"
#include "support/result.h"

namespace whyrss {

enum class EntryKind { missing, file, directory, link, socket, other };

// Which file it is, whatever its name.
struct FileId {
  std::uint64_t device = 0, inode = 0;
  friend bool operator==(const FileId&, const FileId&) = default;
};

struct EntryStatus {
  EntryKind kind = EntryKind::missing;
  FileId identity;
  std::uint64_t size_bytes = 0;
  std::uint32_t owner = 0, group = 0, mode = 0;
  std::uint64_t links = 0;
  std::int64_t changed_s = 0;  // st_ctime
};

// Of an open file. Missing when fstat fails.
EntryStatus status_of(const Fd& fd);

// An open directory; copies share the descriptor. A `name` is relative to it and may hold slashes. Links are not
// followed, in no part of a name, nor does ".." lead out.
class Folder {
 public:
  Folder() = default;
  // `path` is the user's own word: links in it are followed.
  static Result<Folder> open(const std::string& path);
  [[nodiscard]] Result<Folder> open_folder(const std::string& name) const;

  [[nodiscard]] explicit operator bool() const { return fd_ != nullptr; }
  [[nodiscard]] int fd() const { return fd_ ? fd_->get() : -1; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string path_of(const std::string& name) const { return (path_ == "/" ? "" : path_) + "/" + name; }

  // Of the directory itself, and of what has this name (of one component).
  [[nodiscard]] EntryStatus status() const;
  [[nodiscard]] EntryStatus status_of(const std::string& name) const;
  // Belongs to the effective user, and no other user may change what is in it.
  [[nodiscard]] bool is_private() const;

  // Of all entries, in order.
  [[nodiscard]] Result<std::vector<std::string>> list() const;
  // Makes a directory, with the mode that the umask leaves, and opens it.
  [[nodiscard]] Result<Folder> make_folder(const std::string& name, unsigned mode) const;
  [[nodiscard]] bool set_mode(unsigned mode) const;  // of the directory itself
  [[nodiscard]] std::string link_target(const std::string& name) const;

  // For reading. Fails at once for all but a regular file: a FIFO, a device, a socket, a link.
  [[nodiscard]] Result<Fd> open_file(const std::string& name) const;
  // A new file, 0600 whatever the umask, for writing. Fails where one is.
  [[nodiscard]] Result<Fd> create_file(const std::string& name) const;
  [[nodiscard]] Status rename(const std::string& from, const std::string& to) const;
  // Removes `name` if it still is that file.
  bool remove(const std::string& name, const FileId& identity) const;
  void remove(const std::string& name) const;

 private:
  Folder(Fd fd, std::string path) : fd_(std::make_shared<const Fd>(std::move(fd))), path_(std::move(path)) {}

  std::shared_ptr<const Fd> fd_;
  std::string path_;
};

}  // namespace whyrss
