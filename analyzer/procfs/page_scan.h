// What the kernel says about single pages: the entries of /proc/PID/pagemap, and the PAGEMAP_SCAN ioctl
// of Linux 6.7. Own definitions, since the headers of most build machines are older.
// Sources: Documentation/admin-guide/mm/pagemap.rst, include/uapi/linux/fs.h.
#pragma once

#include <cstdint>

namespace whyrss {

struct PagemapBit {
  static constexpr std::uint64_t write_protected = std::uint64_t{1} << 57;  // by userfaultfd
  static constexpr std::uint64_t exclusive = std::uint64_t{1} << 56;        // mapped once
  static constexpr std::uint64_t guard = std::uint64_t{1} << 58;            // 6.15
  static constexpr std::uint64_t file = std::uint64_t{1} << 61;             // page cache or shmem
  static constexpr std::uint64_t swapped = std::uint64_t{1} << 62;
  static constexpr std::uint64_t present = std::uint64_t{1} << 63;
};

struct ScanCategory {
  static constexpr std::uint64_t file = 4;
  static constexpr std::uint64_t present = 8;
  static constexpr std::uint64_t swapped = 16;
  static constexpr std::uint64_t zero_page = 32;
  static constexpr std::uint64_t huge = 64;    // mapped by a PMD, or hugetlb
  static constexpr std::uint64_t guard = 256;  // 6.15; older kernels refuse it with EINVAL
};

struct ScanRegion {  // struct page_region
  std::uint64_t start, end, categories;
};

struct ScanRequest {  // struct pm_scan_arg
  std::uint64_t size_bytes;
  std::uint64_t flags;
  std::uint64_t start, end;
  std::uint64_t walk_end;  // out: where the walk stopped
  std::uint64_t regions;   // address of ScanRegion[region_count]
  std::uint64_t region_count;
  std::uint64_t max_pages;  // 0: no limit
  std::uint64_t category_inverted, category_mask, category_any_mask, return_mask;
};
static_assert(sizeof(ScanRegion) == 24 && sizeof(ScanRequest) == 96);

// _IOWR('f', 16, struct pm_scan_arg)
inline constexpr unsigned long kPagemapScanRequest = 0xc0606610;

}  // namespace whyrss
