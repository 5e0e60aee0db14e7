#include "collect/read/file_reclaim.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>

#include "collect/read/page_runs.h"
#include "procfs/page_scan.h"

namespace whyrss {

using trace::PageBits;

namespace {

// Pages between a read of their pagemap entries and the call that names them: 2 MiB, some microseconds.
constexpr std::size_t kPagesAtOnce = 512;

void append(std::vector<AddressRange>& ranges, std::uint64_t start, std::uint64_t end) {
  if (!ranges.empty() && ranges.back().end == start)
    ranges.back().end = end;
  else
    ranges.push_back({.start = start, .end = end});
}

}  // namespace

std::vector<FileMapping> file_mappings(const PageWalk& walk) {
  std::vector<FileMapping> mappings;
  for (const WalkedVma& vma : walk.vmas) {
    if (vma.vma.backing != trace::Backing::file) continue;
    FileMapping mapping{.start = vma.vma.start,
                        .end = vma.vma.end,
                        .file_offset = vma.vma.file_offset,
                        .device_major = vma.vma.device_major,
                        .device_minor = vma.vma.device_minor,
                        .inode = vma.vma.inode,
                        .path = vma.path,
                        .once = {}};
    std::uint64_t at = vma.vma.start;
    for (const trace::WalkRun& run : vma.runs) {
      const std::uint64_t bytes = run.page_count * kPageBytes;
      if (is_counted(run.bits)) {
        if ((run.bits & PageBits::file) == 0) {
          mapping.copied_bytes += bytes;
        } else if ((run.bits & PageBits::exclusive) == 0) {
          mapping.many_bytes += bytes;
        } else {
          mapping.once_bytes += bytes;
          append(mapping.once, at, at + bytes);
        }
      }
      at += bytes;
    }
    if (mapping.once_bytes + mapping.many_bytes > 0) mappings.push_back(std::move(mapping));
  }
  return mappings;
}

std::vector<AddressRange> once_mapped_file_pages(std::uint64_t start, std::span<const std::uint64_t> entries) {
  constexpr std::uint64_t kWanted = PagemapBit::present | PagemapBit::file | PagemapBit::exclusive;
  std::vector<AddressRange> ranges;
  for (std::size_t index = 0; index < entries.size(); ++index) {
    const std::uint64_t address = start + index * kPageBytes;
    if ((entries[index] & (kWanted | PagemapBit::guard)) == kWanted) append(ranges, address, address + kPageBytes);
  }
  return ranges;
}

Fd open_mapped(const FileMapping& mapping, pid_t pid) {
  // As the process sees it: in a container the same path is another file for us.
  const std::string path = fmt::format("/proc/{}/root{}", pid, mapping.path);
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status {};
  const bool same = fd && fstat(fd.get(), &status) == 0 && S_ISREG(status.st_mode) && status.st_ino == mapping.inode &&
                    major(status.st_dev) == mapping.device_major && minor(status.st_dev) == mapping.device_minor;
  return same ? std::move(fd) : Fd();
}

Result<FileReclaimer> FileReclaimer::open(pid_t pid) {
  Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd) return Error{fmt::format("process {}: {}", pid, std::strerror(errno))};
  const std::string path = fmt::format("/proc/{}/pagemap", pid);
  Fd pagemap(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!pagemap) return system_error("cannot read", path);
  return FileReclaimer(pid, std::move(pidfd), std::move(pagemap));
}

int FileReclaimer::take_out(const FileMapping& mapping) {
  std::array<std::uint64_t, kPagesAtOnce> entries{};
  std::uint64_t done = 0;  // up to this address
  for (const AddressRange& range : mapping.once) {
    for (std::uint64_t at = std::max(range.start, done); at < range.end; at = done) {
      const std::size_t wanted = std::min<std::size_t>(kPagesAtOnce, (mapping.end - at) / kPageBytes);
      const ssize_t got = pread(pagemap_.get(), entries.data(), wanted * sizeof(std::uint64_t),
                                static_cast<off_t>(at / kPageBytes * sizeof(std::uint64_t)));
      const std::size_t count = got > 0 ? static_cast<std::size_t>(got) / sizeof(std::uint64_t) : 0;
      if (count == 0) return 0;  // it has ended, or runs another program
      const int refused = advise(once_mapped_file_pages(at, std::span<const std::uint64_t>(entries).first(count)));
      if (refused != 0) return refused;
      done = at + count * kPageBytes;
    }
  }
  return 0;
}

int FileReclaimer::reclaim(const FileMapping& mapping) {
  if (mapping.once.empty()) return 0;
  const Fd file = open_mapped(mapping, pid_);
  const std::uint64_t first = mapping.once.front().start, last = mapping.once.back().end;
  // Twice: new pages wait in a list of the CPU that read them, where they cannot be taken; a posix_fadvise that finds
  // some still mapped has all CPUs give them up.
  for (int pass = 0; pass < 2; ++pass) {
    if (const int refused = take_out(mapping); refused != 0) return refused;
    if (file)
      posix_fadvise(file.get(), static_cast<off_t>(mapping.file_offset + (first - mapping.start)),
                    static_cast<off_t>(last - first), POSIX_FADV_DONTNEED);
  }
  return 0;
}

int FileReclaimer::advise(const std::vector<AddressRange>& ranges) {
  std::array<iovec, kPagesAtOnce> vectors{};
  static_assert(kPagesAtOnce <= IOV_MAX);
  for (std::size_t next = 0; next < ranges.size();) {
    std::size_t count = 0;
    for (; next + count < ranges.size(); ++count) {
      const AddressRange& range = ranges[next + count];
      // Addresses of the other process: only the kernel follows them.
      vectors[count] = {.iov_base = reinterpret_cast<void*>(range.start),  // NOLINT(performance-no-int-to-ptr)
                        .iov_len = range.end - range.start};
    }
    const ssize_t advised = syscall(SYS_process_madvise, pidfd_.get(), vectors.data(), count, MADV_PAGEOUT, 0);
    if (advised < 0 && (errno == EPERM || errno == EACCES || errno == ENOSYS)) return errno;
    if (advised < 0 && errno == ESRCH) return 0;
    // It stops at the first range that it refuses: that one is passed over.
    std::uint64_t left = advised < 0 ? 0 : static_cast<std::uint64_t>(advised);
    for (; next < ranges.size() && left >= ranges[next].end - ranges[next].start; ++next)
      left -= ranges[next].end - ranges[next].start;
    if (next < ranges.size()) ++next;
  }
  return 0;
}

}  // namespace whyrss
