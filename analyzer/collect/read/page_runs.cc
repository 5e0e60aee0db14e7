#include "collect/read/page_runs.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <utility>

#include "procfs/page_scan.h"

namespace whyrss {
namespace {

using trace::Backing;
using trace::PageBits;

// The kernel holds the target's mmap lock for one call: 2048 pages are 8 MiB, some 30 us.
constexpr std::uint64_t kPagesPerCall = 2048;
constexpr std::size_t kRegionsPerCall = 512;
// Reading entries of absent pages costs less than another call up to about this many.
constexpr std::uint64_t kBridgedPages = 64;
constexpr std::uint64_t kHugePages = 512;                                         // 4 KiB pages of a PMD
constexpr std::uint64_t kOwnEntry = PagemapBit::present | PagemapBit::exclusive;  // private memory, mapped once

std::uint32_t bits_of(std::uint64_t entry, std::uint64_t categories, Backing backing) {
  if ((categories & ScanCategory::guard) != 0 || (entry & PagemapBit::guard) != 0) return PageBits::guard;
  if ((entry & PagemapBit::present) == 0) return (entry & PagemapBit::swapped) != 0 ? PageBits::swapped : 0;
  std::uint32_t bits = PageBits::present;
  if ((entry & PagemapBit::file) != 0) bits |= PageBits::file;
  if ((entry & PagemapBit::exclusive) != 0) bits |= PageBits::exclusive;
  if ((entry & PagemapBit::write_protected) != 0) bits |= PageBits::write_tracked;
  if ((categories & ScanCategory::huge) != 0) bits |= PageBits::huge;
  // Exclusive now: it was written after the scan.
  if ((categories & ScanCategory::zero_page) != 0 && (bits & PageBits::exclusive) == 0) bits |= PageBits::zero;
  // Neither a page-cache page nor an anonymous one: a bare frame number, which RSS does not count.
  const bool bare_frame = (bits & (PageBits::file | PageBits::exclusive)) == 0 &&
                          (backing == Backing::device || backing == Backing::special);
  if (backing == Backing::hugetlb || bare_frame) bits |= PageBits::not_rss;
  return bits;
}

// Walks along the VMAs and turns page entries, which come in address order, into their runs.
class VmaCursor {
 public:
  explicit VmaCursor(std::vector<WalkedVma>& vmas) : vmas_(&vmas) { enter(); }

  // One page, as most are: in the same VMA as the one before.
  void put_page(std::uint64_t address, std::uint64_t entry, std::uint64_t categories) {
    if (address != at_ || address >= end_) return put(address, 1, entry, categories);
    runs_.add(bits_of(entry, categories, backing_), 1);
    at_ += kPageBytes;
  }

  void put(std::uint64_t address, std::uint64_t page_count, std::uint64_t entry, std::uint64_t categories) {
    const std::uint64_t end = address + page_count * kPageBytes;
    while (index_ < vmas_->size() && address < end) {
      const WalkedVma& vma = (*vmas_)[index_];
      if (address >= vma.vma.end) {
        leave();
        continue;
      }
      if (end <= vma.vma.start) return;  // mapped since maps was read
      const std::uint64_t from = std::max(address, vma.vma.start);
      const std::uint64_t to = std::min(end, vma.vma.end);
      if (from > at_) runs_.add(0, (from - at_) / kPageBytes);
      runs_.add(bits_of(entry, categories, vma.vma.backing), (to - from) / kPageBytes);
      at_ = address = to;
    }
  }

  void finish() {
    while (index_ < vmas_->size()) leave();
  }

 private:
  void enter() {
    if (index_ == vmas_->size()) return;
    WalkedVma& vma = (*vmas_)[index_];
    at_ = vma.vma.start;
    end_ = vma.vma.end;
    backing_ = vma.vma.backing;
    runs_ = RunBuilder(vma.runs, (vma.vma.end - vma.vma.start) / kPageBytes);
  }
  void leave() {
    runs_.finish();
    ++index_;
    enter();
  }

  std::vector<WalkedVma>* vmas_;
  std::size_t index_ = 0;
  std::uint64_t at_ = 0, end_ = 0;
  Backing backing_{};
  std::vector<trace::WalkRun> none_;
  RunBuilder runs_{none_, 0};
};

// Entries of [start, start + entries.size() pages); false at the end of the address space's life.
bool read_entries(int fd, std::uint64_t start, std::span<std::uint64_t> entries) {
  auto bytes = std::as_writable_bytes(entries);
  std::uint64_t offset = start / kPageBytes * sizeof(std::uint64_t);
  while (!bytes.empty()) {
    const ssize_t got = pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
  return true;
}

// Entries that a visitor has seen and may have changed. A page is reported as protected only if it was so before: what
// was written to until now shows no protection once, however soon it is protected again.
bool read_again(int fd, std::uint64_t start, std::span<std::uint64_t> entries) {
  const std::vector<std::uint64_t> before(entries.begin(), entries.end());
  if (!read_entries(fd, start, entries)) return false;
  for (std::size_t i = 0; i < entries.size(); ++i) entries[i] &= before[i] | ~PagemapBit::write_protected;
  return true;
}

std::uint64_t pages_of(const ScanRegion& region) { return (region.end - region.start) / kPageBytes; }

bool is_whole_huge(const ScanRegion& region) {
  return (region.categories & ScanCategory::huge) != 0 && region.start % (kHugePages * kPageBytes) == 0 &&
         pages_of(region) % kHugePages == 0;
}

// What a walk reads from, and its visitor.
struct Source {
  int fd;
  PageVisitor* visitor;
};

// One entry tells for all pages under a PMD.
bool put_huge(const Source& source, const ScanRegion& region, VmaCursor& cursor) {
  for (std::uint64_t at = region.start; at < region.end; at += kHugePages * kPageBytes) {
    std::uint64_t entry = 0;
    if (!read_entries(source.fd, at, std::span(&entry, 1))) return false;
    const ScanRegion page{at, at + kHugePages * kPageBytes, region.categories};
    if (source.visitor != nullptr && source.visitor->visit(page, std::span(&entry, 1)) &&
        !read_again(source.fd, at, std::span(&entry, 1)))
      return false;
    cursor.put(at, kHugePages, entry, region.categories);
  }
  return true;
}

// The entries from `start` on, in which the regions lie.
bool read_regions(const Source& source, std::uint64_t start, std::span<const ScanRegion> regions,
                  std::span<std::uint64_t> entries) {
  if (!read_entries(source.fd, start, entries)) return false;
  if (source.visitor == nullptr) return true;
  bool changed = false;
  for (const ScanRegion& region : regions)
    changed |= source.visitor->visit(region, entries.subspan((region.start - start) / kPageBytes, pages_of(region)));
  return !changed || read_again(source.fd, start, entries);
}

// Reads the entries of neighbouring regions with few calls.
bool put_regions(const Source& source, std::span<const ScanRegion> regions, VmaCursor& cursor,
                 std::vector<std::uint64_t>& entries) {
  while (!regions.empty()) {
    if (is_whole_huge(regions.front())) {
      if (!put_huge(source, regions.front(), cursor)) return false;
      regions = regions.subspan(1);
      continue;
    }
    const std::uint64_t start = regions.front().start;
    std::size_t count = 1;
    while (count < regions.size() && !is_whole_huge(regions[count]) &&
           regions[count].start - regions[count - 1].end <= kBridgedPages * kPageBytes &&
           regions[count].end - start <= 2 * kPagesPerCall * kPageBytes)
      ++count;
    entries.resize((regions[count - 1].end - start) / kPageBytes);
    if (!read_regions(source, start, regions.first(count), entries)) return false;
    for (const ScanRegion& region : regions.first(count))
      for (std::uint64_t at = region.start; at < region.end; at += kPageBytes)
        cursor.put_page(at, entries[(at - start) / kPageBytes], region.categories);
    regions = regions.subspan(count);
  }
  return true;
}

// Populated pages whose entries are known already, in address order: those that an earlier walk has reported, and all
// of the process's own pages where no other process maps them.
class KnownEntries {
 public:
  struct Range {
    std::uint64_t start, end, entry;
  };

  KnownEntries(const ScanPlan& plan, const std::vector<WalkedVma>& vmas) {
    auto pages = plan.known.files.begin();
    auto spans = std::span(plan.known.own);
    auto shared = plan.relatives == Relatives::none ? std::span<const PageSpan>() : std::span(plan.known.shared);
    for (const WalkedVma& walked : vmas) {
      while (pages != plan.known.files.end() && pages->start < walked.vma.start) ++pages;
      if (pages != plan.known.files.end() && is_same(*pages, walked.vma)) add_file(*pages);
      if ((plan.relatives != Relatives::none && !plan.trusts_shared) || !is_own(walked.vma)) continue;
      add_own(walked.vma, shared);
      while (!spans.empty() && spans.front().end <= walked.vma.start) spans = spans.subspan(1);
      for (const PageSpan& span : spans) {
        if (span.start >= walked.vma.end) break;
        long_runs_.push_back({std::max(span.start, walked.vma.start), std::min(span.end, walked.vma.end), kOwnEntry});
      }
    }
  }

  // Long runs of pages that were all there.
  [[nodiscard]] const std::vector<Range>& long_runs() const { return long_runs_; }

  // Splits a region where knowledge begins and ends.
  void split(ScanRegion region, std::vector<ScanRegion>& pieces) {
    while (next_ < ranges_.size() && ranges_[next_].end <= region.start) ++next_;
    for (std::size_t i = next_; i < ranges_.size() && ranges_[i].start < region.end; ++i) {
      const std::uint64_t from = std::max(region.start, ranges_[i].start);
      const std::uint64_t to = std::min(region.end, ranges_[i].end);
      if (from > region.start) pieces.push_back({region.start, from, region.categories});
      pieces.push_back({from, to, region.categories});
      region.start = to;
    }
    if (region.start < region.end) pieces.push_back(region);
  }

  // The entry of a piece; 0: not known.
  [[nodiscard]] std::uint64_t entry_of(const ScanRegion& piece) {
    while (asked_ < ranges_.size() && ranges_[asked_].end <= piece.start) ++asked_;
    const bool within = asked_ < ranges_.size() && ranges_[asked_].start <= piece.start;
    if (!within) return 0;
    if (ranges_[asked_].entry == kOwnEntry) return own_entry(piece.categories);
    const bool plain = (piece.categories & (ScanCategory::present | ScanCategory::huge)) == ScanCategory::present;
    return plain ? ranges_[asked_].entry : 0;
  }

  [[nodiscard]] bool empty() const { return ranges_.empty(); }

 private:
  // All of it but `shared`, of which what lies before is dropped.
  void add_own(const trace::WalkVma& vma, std::span<const PageSpan>& shared) {
    while (!shared.empty() && shared.front().end <= vma.start) shared = shared.subspan(1);
    std::uint64_t at = vma.start;
    for (const PageSpan& span : shared) {
      if (span.start >= vma.end) break;
      if (span.start > at) ranges_.push_back({at, span.start, kOwnEntry});
      at = std::max(at, std::min(span.end, vma.end));
    }
    if (at < vma.end) ranges_.push_back({at, vma.end, kOwnEntry});
  }

  // As pagemap would tell it.
  static std::uint64_t own_entry(std::uint64_t categories) {
    if ((categories & ScanCategory::present) == 0) return PagemapBit::swapped;
    if ((categories & ScanCategory::zero_page) == 0) return kOwnEntry;
    return PagemapBit::present | ((categories & ScanCategory::huge) != 0 ? PagemapBit::file : 0);
  }

  static bool is_same(const KnownPages& pages, const trace::WalkVma& vma) {
    return pages.start == vma.start && pages.end == vma.end && pages.inode == vma.inode &&
           pages.file_offset == vma.file_offset && pages.device_major == vma.device_major &&
           pages.device_minor == vma.device_minor && (vma.perms & trace::VmaPerms::shared) != 0;
  }

  void add_file(const KnownPages& pages) {
    std::uint64_t at = pages.start;
    for (const trace::WalkRun& run : pages.runs) {
      const std::uint64_t end = at + run.page_count * kPageBytes;
      const bool plain = (run.bits & ~(PageBits::present | PageBits::file | PageBits::exclusive)) == 0;
      if (plain && (run.bits & PageBits::file) != 0) {
        ranges_.push_back({at, end,
                           PagemapBit::present | PagemapBit::file |
                               ((run.bits & PageBits::exclusive) != 0 ? PagemapBit::exclusive : 0)});
        if (run.page_count >= kLongRunPages) long_runs_.push_back(ranges_.back());
      }
      at = end;
    }
  }

  std::vector<Range> ranges_, long_runs_;
  std::size_t next_ = 0, asked_ = 0;
};

// Checks one page, at any place, of those that no other process is to map: false if one does. A fork makes all of them
// shared at once, so one page of each call tells of a fork that is not known yet.
class OwnershipCheck {
 public:
  explicit OwnershipCheck(int pagemap_fd) : pagemap_fd_(pagemap_fd) {}

  bool holds_for(const ScanRegion& piece) {
    next_ += kStride;
    std::uint64_t entry = 0;
    if (!read_entries(pagemap_fd_, piece.start + next_ % pages_of(piece) * kPageBytes, std::span(&entry, 1)))
      return true;
    return (entry & PagemapBit::present) == 0 || (entry & PagemapBit::exclusive) != 0;
  }

 private:
  static constexpr std::uint64_t kStride = 0x9e3779b97f4a7c15;  // hits all parts of a piece alike
  int pagemap_fd_;
  std::uint64_t next_ = 0;
};

// Regions of which some are known: those are not read.
ScanEnd put_split(const Source& source, std::span<const ScanRegion> regions, KnownEntries& known,
                  OwnershipCheck& ownership, VmaCursor& cursor, std::vector<std::uint64_t>& entries) {
  const auto end_of = [](bool alive) { return alive ? ScanEnd::whole : ScanEnd::process_ended; };
  if (known.empty()) return end_of(put_regions(source, regions, cursor, entries));
  std::vector<ScanRegion> pieces;
  for (const ScanRegion& region : regions) known.split(region, pieces);
  bool checked = false;
  for (std::size_t first = 0, end = 0; first < pieces.size(); first = end) {
    const std::uint64_t entry = known.entry_of(pieces[first]);
    end = first + 1;
    if (entry != 0) {
      const bool is_own = entry == kOwnEntry;
      if (is_own && !std::exchange(checked, true) && !ownership.holds_for(pieces[first])) return ScanEnd::has_relatives;
      cursor.put(pieces[first].start, pages_of(pieces[first]), entry, pieces[first].categories);
      continue;
    }
    while (end < pieces.size() && known.entry_of(pieces[end]) == 0) ++end;
    if (!put_regions(source, std::span(pieces).subspan(first, end - first), cursor, entries))
      return ScanEnd::process_ended;
  }
  return ScanEnd::whole;
}

ScanRequest request_for(std::uint64_t start, std::uint64_t end, std::span<ScanRegion> regions, bool with_guards) {
  return {.size_bytes = sizeof(ScanRequest),
          .flags = 0,
          .start = start,
          .end = end,
          .walk_end = 0,
          .regions = reinterpret_cast<std::uint64_t>(regions.data()),
          .region_count = regions.size(),
          .max_pages = kPagesPerCall,
          .category_inverted = 0,
          .category_mask = 0,
          .category_any_mask = ScanCategory::present | ScanCategory::swapped,
          .return_mask = ScanCategory::present | ScanCategory::swapped | ScanCategory::zero_page | ScanCategory::huge |
                         (with_guards ? ScanCategory::guard : 0)};
}

// The user part of the address space; [vsyscall] lies above and is never in RSS.
std::uint64_t end_of_user_memory(const std::vector<WalkedVma>& vmas) {
  std::uint64_t end = 0;
  for (const WalkedVma& vma : vmas)
    if (vma.vma.end < (std::uint64_t{1} << 63)) end = std::max(end, vma.vma.end);
  return end;
}

}  // namespace

void RunBuilder::add(std::uint32_t bits, std::uint64_t page_count) {
  page_count = std::min(page_count, left_);
  left_ -= page_count;
  while (page_count > 0) {
    if (runs_->empty() || runs_->back().bits != bits || runs_->back().page_count == UINT32_MAX)
      runs_->push_back({.bits = bits, .page_count = 0});
    const auto room = std::uint64_t{UINT32_MAX} - runs_->back().page_count;
    const auto taken = static_cast<std::uint32_t>(std::min(room, page_count));
    runs_->back().page_count += taken;
    page_count -= taken;
  }
}

bool is_own(const trace::WalkVma& vma) {
  return vma.backing == Backing::anonymous && (vma.perms & trace::VmaPerms::shared) == 0;
}

ScanEnd scan_runs(int pagemap_fd, const WalkMethods& methods, std::vector<WalkedVma>& vmas, const ScanPlan& plan) {
  KnownEntries known(plan, vmas);
  OwnershipCheck ownership(pagemap_fd);
  VmaCursor cursor(vmas);
  std::array<ScanRegion, kRegionsPerCall> regions;
  std::vector<std::uint64_t> entries;
  const std::vector<KnownEntries::Range> none;
  const auto& left_out = plan.takes_long_runs ? known.long_runs() : none;
  auto run = left_out.begin();
  std::uint64_t at = vmas.empty() ? 0 : vmas.front().vma.start;
  const std::uint64_t end = end_of_user_memory(vmas);
  ScanEnd outcome = ScanEnd::whole;
  while (outcome == ScanEnd::whole && at < end) {
    if (run != left_out.end() && at == run->start) {
      const ScanRegion piece{run->start, run->end, ScanCategory::present};
      if (run->entry == kOwnEntry && !ownership.holds_for(piece)) outcome = ScanEnd::has_relatives;
      cursor.put(run->start, pages_of(piece), run->entry, piece.categories);
      at = run++->end;
      continue;
    }
    const std::uint64_t until = run == left_out.end() ? end : run->start;
    ScanRequest request = request_for(at, until, regions, methods.scan_guards);
    const int count = ioctl(pagemap_fd, kPagemapScanRequest, &request);
    if (count < 0 || request.walk_end <= at) {
      outcome = ScanEnd::process_ended;
      break;
    }
    outcome = put_split({.fd = pagemap_fd, .visitor = plan.visitor},
                        std::span(regions).first(static_cast<std::size_t>(count)), known, ownership, cursor, entries);
    at = request.walk_end;
    if (methods.between) methods.between();
  }
  cursor.finish();
  return outcome;
}

bool read_runs(int pagemap_fd, const WalkMethods& methods, std::vector<WalkedVma>& vmas) {
  VmaCursor cursor(vmas);
  std::vector<std::uint64_t> entries;
  bool alive = true;
  for (std::size_t i = 0; alive && i < vmas.size(); ++i) {
    const std::uint64_t end = vmas[i].vma.end;
    for (std::uint64_t at = vmas[i].vma.start; alive && at < end && end < (std::uint64_t{1} << 63);) {
      entries.resize(std::min(kPagesPerCall, (end - at) / kPageBytes));
      alive = read_entries(pagemap_fd, at, entries);
      for (std::size_t page = 0; alive && page < entries.size(); ++page)
        if (entries[page] != 0) cursor.put(at + page * kPageBytes, 1, entries[page], 0);
      at += entries.size() * kPageBytes;
      if (methods.between) methods.between();
    }
  }
  cursor.finish();
  return alive;
}

bool has_pagemap_scan(int pagemap_fd, bool with_guards) {
  std::array<ScanRegion, 1> regions;
  const auto page = reinterpret_cast<std::uint64_t>(&regions) / kPageBytes * kPageBytes;
  ScanRequest request = request_for(page, page + kPageBytes, regions, with_guards);
  return ioctl(pagemap_fd, kPagemapScanRequest, &request) >= 0;
}

}  // namespace whyrss
