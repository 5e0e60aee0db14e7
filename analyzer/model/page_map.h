// What each resident page of a process is: the picture of its address space at one walk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "model/cause.h"
#include "model/stack_table.h"

namespace whyrss {

// Consecutive cells of one mapping of which the same is to be said.
struct PageMapRun {
  std::uint64_t start = 0, end = 0;
  std::uint64_t pages = 0;       // resident between them: in larger cells some may not be
  Cause cause = Cause::unknown;  // of most of each page's bytes, and of most pages of each cell
  // Who allocated there last, or mapped it, on most of the pages of which that is known. Empty: of none.
  StackId stack = kEmptyStack;
  std::uint8_t live_sixteenths = kWholePage;  // of heap_live: how much of each page live blocks fill, from 1 on
  static constexpr std::uint8_t kWholePage = 16;

  [[nodiscard]] bool continues(const PageMapRun& before) const {
    return start == before.end && cause == before.cause && stack == before.stack &&
           live_sixteenths == before.live_sixteenths;
  }
  void take_in(const PageMapRun& next) {
    end = next.end;
    pages += next.pages;
  }
  friend bool operator==(const PageMapRun&, const PageMapRun&) = default;
};

// Resident pages that walks have seen there without a break since then.
struct PageAge {
  std::uint64_t start = 0, end = 0;
  double since_s = 0;

  [[nodiscard]] bool continues(const PageAge& before) const { return start == before.end && since_s == before.since_s; }
  void take_in(const PageAge& next) { end = next.end; }
  friend bool operator==(const PageAge&, const PageAge&) = default;
};

// Behind all others, as a part of the last one where it continues that. Of runs or ages.
template <typename Stretch>
void append_joined(std::vector<Stretch>& stretches, const Stretch& next) {
  if (stretches.empty() || !next.continues(stretches.back()))
    stretches.push_back(next);
  else
    stretches.back().take_in(next);
}

inline constexpr std::uint64_t kPictureCellBytes = 4096;

// Lists are sorted by address.
struct PageMapMapping {
  std::uint64_t start = 0, end = 0;
  std::uint64_t file_offset = 0;  // of its start, where a file is behind it
  std::string path;               // or [name], "" if nameless
  bool readable = true, writable = false, executable = false, shared = false;
  std::uint64_t cell_bytes = kPictureCellBytes;  // a power of two; cells begin at multiples
  std::vector<PageMapRun> runs;
  std::vector<PageAge> ages;  // of the same cells
};

struct PageMap {
  std::vector<PageMapMapping> mappings;  // those with resident pages
  // The smallest ones, where there are too many to show.
  std::size_t mappings_left_out = 0;
  std::uint64_t pages_left_out = 0;

  [[nodiscard]] std::size_t entries() const {
    std::size_t sum = 0;
    for (const PageMapMapping& mapping : mappings) sum += mapping.runs.size() + mapping.ages.size();
    return sum;
  }
};

}  // namespace whyrss
