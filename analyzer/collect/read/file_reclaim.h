// Takes pages of mapped files out of a living process, as the kernel itself does when memory is short: by
// process_madvise(MADV_PAGEOUT) on those pages alone. Private copies and other anonymous memory are never named in a
// call, so that none of it is swapped out.
//
// What the kernel asks for (mm/madvise.c, process_madvise(2)): Linux 5.10, the right to walk the process
// (PTRACE_MODE_READ), CAP_SYS_NICE, and of each file that the caller owns it or may write to it; of other files nothing
// happens. It leaves pages that are mapped more than once, and whole mappings that are locked. A dirty page of a shared
// mapping leaves the process and stays in the page cache until it is written: nothing is lost. Of a large folio with
// pages that are not mapped (copied ones have left gaps) it only takes the others out of the process, as splitting the
// folio does; posix_fadvise(POSIX_FADV_DONTNEED) then drops them, as far as no process maps them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collect/read/page_walk.h"
#include "support/file.h"
#include "support/result.h"

namespace whyrss {

struct AddressRange {
  std::uint64_t start, end;
  friend bool operator==(const AddressRange&, const AddressRange&) = default;
};

// A mapping of a file of a disk or network file system, and its pages that are resident in the process.
struct FileMapping {
  std::uint64_t start, end, file_offset;
  std::uint32_t device_major, device_minor;
  std::uint64_t inode;
  std::string path;                              // as maps prints it
  std::uint64_t once_bytes = 0, many_bytes = 0;  // page cache, mapped once, and more often
  std::uint64_t copied_bytes = 0;                // private copies
  std::vector<AddressRange> once;                // where the pages lie that are mapped once
};

// Only mappings that have page cache in the process.
std::vector<FileMapping> file_mappings(const PageWalk& walk);

// Of `entries`, pagemap's of the pages from `start` on: the present pages of a file that are mapped once.
std::vector<AddressRange> once_mapped_file_pages(std::uint64_t start, std::span<const std::uint64_t> entries);

// The file of a mapping, for reading; none when it cannot be opened, or has been replaced since.
Fd open_mapped(const FileMapping& mapping, pid_t pid);

class FileReclaimer {
 public:
  // Fails when there is no such process, or when it may not be walked.
  static Result<FileReclaimer> open(pid_t pid);

  // 0, or the error number with which the kernel refused, having changed nothing: EPERM without CAP_SYS_NICE, EACCES
  // without the right to walk the process, ENOSYS before Linux 5.10.
  // Each page is walked again right before it is named: what has become a private copy since is left out. Ranges
  // that the kernel refuses (unmapped or locked meanwhile) are passed over.
  int reclaim(const FileMapping& mapping);

 private:
  FileReclaimer(pid_t pid, Fd pidfd, Fd pagemap) : pid_(pid), pidfd_(std::move(pidfd)), pagemap_(std::move(pagemap)) {}
  int take_out(const FileMapping& mapping);
  int advise(const std::vector<AddressRange>& ranges);

  pid_t pid_;
  Fd pidfd_, pagemap_;
};

}  // namespace whyrss
