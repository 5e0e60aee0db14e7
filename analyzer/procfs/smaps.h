// /proc/PID/smaps and smaps_rollup, text to structs. Sizes in bytes. What the fields mean:
// Documentation/filesystems/proc.rst, and notes below where the name misleads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "procfs/maps.h"

namespace whyrss {

struct SmapsEntry {
  MapsEntry range;
  std::int64_t size_bytes = 0;
  std::int64_t page_bytes = 0;  // KernelPageSize; larger than a page only for hugetlb
  std::int64_t rss_bytes = 0;   // without hugetlb, the zero page and PFN mappings
  std::int64_t pss_bytes = 0;
  // Its parts; in smaps_rollup only, since Linux 5.4.
  std::optional<std::int64_t> pss_anonymous_bytes{}, pss_file_bytes{}, pss_shmem_bytes{};
  std::int64_t shared_clean_bytes = 0, shared_dirty_bytes = 0;  // mapped at least twice, maybe by one process
  std::int64_t private_clean_bytes = 0, private_dirty_bytes = 0;
  std::int64_t anonymous_bytes = 0;  // also copied pages of a private file mapping
  std::int64_t lazy_free_bytes = 0;  // MADV_FREE, still in rss_bytes
  std::int64_t anon_huge_bytes = 0;  // mapped by a PMD only
  std::int64_t hugetlb_bytes = 0;    // not in rss_bytes
  std::int64_t swap_bytes = 0;
  std::string vm_flags;  // "rd wr mr ..."

  [[nodiscard]] std::int64_t uss_bytes() const { return private_clean_bytes + private_dirty_bytes; }
};

// No two of them overlap; of one that was cut short (maps.h) the sizes are still those of the whole.
std::vector<SmapsEntry> parse_smaps(std::string_view text);

// The sums of smaps_rollup; nothing when it holds none (an exiting process).
std::optional<SmapsEntry> parse_smaps_rollup(std::string_view text);

}  // namespace whyrss
