// The file behind the pool (trace/pool.h): where it may lie, and its life.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "shim/trace/pool.h"
#include "support/file.h"
#include "support/result.h"

namespace whyrss {

// Removes the file when it goes. After a kill it stays, so that `report` finds what was not drained.
class PoolFile {
 public:
  PoolFile() = default;
  // What is reserved at once: the least that a session needs, more being added by need where the file lies in memory;
  // or all, so that no process of the tree is ever charged with it.
  enum class Space { by_need, all };
  // /dev/shm; else in `recording_directory`, where its file system never blocks or fails a store (ext4,
  // xfs, tmpfs); else anonymous memory named by /proc/<our pid>/fd. There is room for all of it.
  static Result<PoolFile> create(trace::SessionId session, const std::string& recording_directory,
                                 Space space = Space::by_need);
  PoolFile(PoolFile&& other) noexcept;
  PoolFile& operator=(PoolFile&& other) noexcept;
  PoolFile(const PoolFile&) = delete;
  PoolFile& operator=(const PoolFile&) = delete;
  ~PoolFile();

  // The calling thread, which lives as long as this process, reads the pool from now on; processes that wait for it
  // notice at once when it dies. Once in a process.
  void become_reader() const;
  [[nodiscard]] trace::PoolView view() const { return view_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::size_t size_bytes() const { return mapping_.size_bytes(); }
  // Whether another process has it open or mapped; false also where the kernel does not say.
  [[nodiscard]] bool is_in_use() const;
  [[nodiscard]] bool is_mapped_by(pid_t pid) const;
  // The other processes that map it, as far as they can be seen.
  [[nodiscard]] std::vector<pid_t> users() const;

 private:
  Result<std::uint32_t> reserve(std::uint32_t chunk_count, Space space);

  Fd fd_;
  Mapping mapping_;
  trace::PoolView view_;
  std::string path_;
  bool unlink_ = false;
};

}  // namespace whyrss
