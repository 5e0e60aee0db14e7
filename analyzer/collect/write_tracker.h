// Which pages of a process are written, told by the kernel: pages are write-protected by its userfaultfd, from here,
// and lose PagemapBit::write_protected when somebody writes to them. The process notices nothing: the kernel resolves
// such a write by itself (UFFD_FEATURE_WP_ASYNC, Linux 6.7). Closing the descriptor takes all protection back.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "collect/page_walk.h"
#include "shim/trace/trace_format.h"
#include "support/file.h"

namespace whyrss {

class WriteTracker {
 public:
  // Takes a userfaultfd nobody has used yet; nothing when it is none, or the kernel is too old.
  static std::optional<WriteTracker> adopt(Fd userfaultfd);

  enum class Huge { leave, mark };

  // Protects the private anonymous pages of `pid` that another process maps too: a fork has protected them anyway, so
  // their next write costs the program no more than without. Mappings that the program itself has registered with a
  // userfaultfd are left alone. Pages mapped by a PMD only with Huge::mark: a write to one splits it, also after the
  // others that shared it have gone. Returns the runs that are protected now, in address order; nothing when the
  // process has gone or runs another program.
  std::optional<std::vector<trace::PageRun>> protect_shared(pid_t pid, const WalkMethods& methods,
                                                            BackingResolver& resolver, Huge huge) const;

 private:
  explicit WriteTracker(Fd userfaultfd) : userfaultfd_(std::move(userfaultfd)) {}

  Fd userfaultfd_;
};

// The payload of a `tracked` frame.
std::vector<std::byte> encode_tracked(std::int64_t begin_ns, std::int64_t end_ns,
                                      const std::vector<trace::PageRun>& runs);

}  // namespace whyrss
