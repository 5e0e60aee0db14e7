// What a fork child inherited, and what became of it from walk to walk. Which pages it copied is decided for its whole
// family (page_sharing.h).
#pragma once

#include <cstdint>
#include <vector>

#include "attribute/evidence.h"
#include "attribute/interval_map.h"

namespace whyrss {

// A run of private anonymous pages in one walk.
struct AnonymousRun {
  std::uint64_t start = 0, end = 0;
  bool exclusive = false;
  bool resident = false;  // else swapped
  bool marked = false;    // its next write will be reported, and was not yet: see PageSharing::mark
  bool huge = false;      // mapped 2 MiB at a time: `exclusive` is that of the first page of each
};

class Inheritance {
 public:
  void add(std::uint64_t start, std::uint64_t end) { ranges_.assign(start, end, ForkClass::shared); }
  void restore(const ForkRange& range) { ranges_.assign(range.start, range.end, range.fork_class); }
  void drop(std::uint64_t start, std::uint64_t end) { ranges_.erase(start, end); }
  void clear() { ranges_.clear(); }
  [[nodiscard]] bool empty() const { return ranges_.empty(); }

  [[nodiscard]] std::vector<ForkRange> ranges() const;
  [[nodiscard]] std::vector<ForkRange> within(std::uint64_t start, std::uint64_t end) const;

  // Takes in a walk: `runs` are all private anonymous pages of the process, sorted; pages that are in none of them are
  // gone.
  void keep(const std::vector<AnonymousRun>& runs);
  // What of [start, end) is inherited, and not copied before, has become `fork_class`.
  void settle(std::uint64_t start, std::uint64_t end, ForkClass fork_class);

 private:
  IntervalMap<ForkClass> ranges_;
};

}  // namespace whyrss
