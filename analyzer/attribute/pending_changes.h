// Changes of an address space that wait until a walk of it is over: pages that the program gives back meanwhile may
// have been seen before they went. In the order in which they came.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attribute/evidence.h"
#include "attribute/interval_map.h"

namespace whyrss {

struct PendingChange {
  enum class Kind : std::uint8_t { unmap, drop_pages, release, map, allocate };
  Kind kind = Kind::unmap;
  Range pages;            // whose owner changes
  OwnedRange range = {};  // the block or mapping; its owner and stack say something of `map` and `allocate` alone
  std::uint32_t tid = 0;  // of a release
};

class PendingChanges {
 public:
  void add(const PendingChange& change);
  [[nodiscard]] bool empty() const { return changes_.empty(); }
  [[nodiscard]] std::size_t size() const { return changes_.size(); }
  [[nodiscard]] bool overlaps(Range pages) const;

  // Takes out what must be made before something else can be said of `pages`: what overlaps them, and what of the
  // changes before it overlaps those.
  std::vector<PendingChange> take(Range pages);
  std::vector<PendingChange> take_all();
  // A failed realloc: `tid` has not released that block after all. False: no such release waits.
  bool cancel_release(std::uint64_t address, std::uint32_t tid);

 private:
  void put(const std::vector<PendingChange>& changes);

  std::vector<PendingChange> changes_;
  IntervalMap<bool> covered_;  // by them
};

}  // namespace whyrss
