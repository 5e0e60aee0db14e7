// Which pages of a process are written, known from the kernel: pages are write-protected by its userfaultfd, from here,
// and lose PagemapBit::write_protected with the first write to them. The process notices nothing: the kernel resolves
// such a write by itself (UFFD_FEATURE_WP_ASYNC, Linux 6.7). Closing the descriptor takes all protection back.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "collect/read/page_walk.h"
#include "shim/trace/trace_format.h"
#include "support/file.h"

namespace whyrss {

class WriteTracker {
 public:
  // Takes a userfaultfd that is not in use yet; nothing when it is none, or the kernel is too old.
  static std::optional<WriteTracker> adopt(Fd userfaultfd);

  // Pages mapped by a PMD: a write to one that is marked splits it, also after the others that shared it have gone.
  enum class Huge { leave, mark };

  // Goes along with one walk of the process (page_walk.h).
  class Pass;
  [[nodiscard]] Pass pass(Huge huge) const;

 private:
  explicit WriteTracker(Fd userfaultfd) : userfaultfd_(std::move(userfaultfd)) {}

  Fd userfaultfd_;
};

// Protects the private anonymous pages that another process maps too: a fork has protected them anyway, so their next
// write costs the program no more than without. Mappings that the program itself has registered with a userfaultfd are
// left alone. What the walk tells of a page is how it was after that,
// but for the protection: only pages that had it before show it.
class WriteTracker::Pass final : public PageVisitor {
 public:
  struct SharedPages {  // that lie together
    trace::PageRun run;
    bool is_new;  // else all were protected before: no call is needed; those behind a new one go along
  };

  Pass(int userfaultfd, Huge huge) : userfaultfd_(userfaultfd), huge_(huge) {}
  void begin(const std::vector<WalkedVma>& vmas) override;
  bool visit(const ScanRegion& region, std::span<const std::uint64_t> entries) override;

  // The runs that are protected now, in address order; nothing when the process has gone or runs another program.
  std::optional<std::vector<trace::PageRun>> take_runs();

 private:
  enum class State { seen, registered, refused };
  struct TrackedMapping {
    std::uint64_t start, end;
    State state;
  };

  bool protect_shared(TrackedMapping& mapping);
  bool register_mapping(const TrackedMapping& mapping);

  int userfaultfd_;
  Huge huge_;
  bool gone_ = false, lost_ = false, any_registered_ = false;
  int calls_ = 0;
  std::size_t next_ = 0;
  std::vector<TrackedMapping> mappings_;
  std::vector<SharedPages> shared_;
  std::vector<trace::PageRun> runs_;
};

inline WriteTracker::Pass WriteTracker::pass(Huge huge) const { return {userfaultfd_.get(), huge}; }

// The payload of the `tracked` frame of a walk that began then.
std::vector<std::byte> encode_tracked(std::uint64_t time_ns, const std::vector<trace::PageRun>& runs);

}  // namespace whyrss
