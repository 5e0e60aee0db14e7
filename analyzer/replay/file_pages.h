// File pages of one process that came and went while their mapping stayed: what the kernel took back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attribute/interval_map.h"
#include "decode/page_walk_reader.h"

namespace whyrss {

class FilePages {
 public:
  // The program itself unmapped it, mapped over it, or gave its pages up. `during_walk`: while the next walk was under
  // way, which may have seen the pages all the same.
  void forget(std::uint64_t start, std::uint64_t size_bytes, bool during_walk);
  // Bytes that were resident at the last walk, and are not at this one. What came and went in between is not seen.
  std::int64_t observe(const WalkedPages& pages);

 private:
  IntervalMap<std::size_t> resident_;  // to the index of the mapping's name
  std::vector<std::string> names_;
  std::vector<Range> forgotten_;  // during the next walk
};

}  // namespace whyrss
