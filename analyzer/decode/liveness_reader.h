// Liveness frames, bytes to pages. One reader per process: most frames hold differences to the one before.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "attribute/evidence.h"
#include "decode/bytes.h"

namespace whyrss {

struct WalkLiveness {
  std::uint64_t walk_end_ns = 0;
  bool has_table = false;  // else only pages of CPython's pools are listed, if any
  std::vector<LivePages> pages;
  std::int64_t table_live_bytes = 0, pymalloc_live_bytes = 0;  // also on pages that are not resident
  std::uint64_t underflowed_pages = 0;
};

class LivenessReader {
 public:
  // In the order in which they were written. Nothing when the frame is damaged, or says only what has changed since
  // one that was; then there is nothing until the next whole one.
  std::optional<WalkLiveness> read(Bytes payload);

 private:
  struct Words {
    std::uint64_t start = 0;
    std::vector<std::uint16_t> words;  // trace::PageLiveness
  };
  bool read_ranges(ByteReader& reader, std::uint32_t range_count, bool whole, std::vector<Words>& ranges) const;

  std::vector<Words> last_;
  std::uint64_t last_ns_ = 0;  // 0: nothing that a difference could refer to
};

}  // namespace whyrss
