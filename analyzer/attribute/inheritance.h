// What a fork child inherited, and what became of it from walk to walk.
//
// The exclusive bit says "mapped once", not "my own copy": it also turns on when a relative exits or
// copies. So of the pages that turned exclusive between two walks at most as many count as copied as
// this process took minor faults; the rest became its own without a copy.
// Source: tests in the kernel's Documentation/admin-guide/mm/pagemap.rst terms, and measurement: a
// write to a shared page is exactly one minor fault, an exit of a relative is none.
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

  // Takes in a walk: `runs` are all private anonymous pages of the process, sorted; pages that are in
  // none of them are gone. `minor_faults`: taken since the last walk. Returns what was copied since.
  std::vector<Range> observe(const std::vector<AnonymousRun>& runs, std::uint64_t minor_faults,
                             std::uint64_t page_bytes);

 private:
  IntervalMap<ForkClass> ranges_;
};

}  // namespace whyrss
