// Which pages `prove` may name to the kernel: page cache that is mapped once, and never a private copy.
#include "collect/read/file_reclaim.h"

#include <gtest/gtest.h>

#include "collect/read/page_runs.h"
#include "procfs/page_scan.h"

namespace whyrss::file_reclaim_test {
namespace {

using trace::PageBits;

constexpr std::uint64_t kOnce = PagemapBit::present | PagemapBit::file | PagemapBit::exclusive;
constexpr std::uint64_t kMany = PagemapBit::present | PagemapBit::file;
constexpr std::uint64_t kCopy = PagemapBit::present | PagemapBit::exclusive;

AddressRange pages(std::uint64_t first, std::uint64_t end) {
  return {.start = first * kPageBytes, .end = end * kPageBytes};
}

TEST(OnceMappedFilePages, JoinsNeighboursAndLeavesEverythingElse) {
  const std::vector<std::uint64_t> entries{kOnce, kOnce, kCopy, kOnce, kMany, 0, PagemapBit::swapped, kOnce, kOnce};
  const std::vector<AddressRange> expected{pages(10, 12), pages(13, 14), pages(17, 19)};
  EXPECT_EQ(once_mapped_file_pages(10 * kPageBytes, entries), expected);
}

TEST(OnceMappedFilePages, NamesNoGuardPage) {
  const std::vector<std::uint64_t> entries{kOnce | PagemapBit::guard, kOnce};
  EXPECT_EQ(once_mapped_file_pages(0, entries), (std::vector<AddressRange>{pages(1, 2)}));
}

TEST(OnceMappedFilePages, FindsNoneInAnonymousMemory) {
  const std::vector<std::uint64_t> entries(600, kCopy);
  EXPECT_TRUE(once_mapped_file_pages(0, entries).empty());
}

WalkedVma vma(trace::Backing backing, std::vector<trace::WalkRun> runs) {
  std::uint64_t page_count = 0;
  for (const auto& run : runs) page_count += run.page_count;
  WalkedVma walked;
  walked.vma.start = 100 * kPageBytes;
  walked.vma.end = (100 + page_count) * kPageBytes;
  walked.vma.backing = backing;
  walked.path = "/data/frames.mdb";
  walked.runs = std::move(runs);
  return walked;
}

TEST(FileMappings, TellsOnceFromManyAndCopies) {
  constexpr std::uint32_t kFile = PageBits::present | PageBits::file;
  PageWalk walk;
  walk.vmas.push_back(
      vma(trace::Backing::file, {{.bits = kFile | PageBits::exclusive, .page_count = 3},
                                 {.bits = 0, .page_count = 2},
                                 {.bits = PageBits::present | PageBits::exclusive, .page_count = 4},
                                 {.bits = kFile, .page_count = 5},
                                 {.bits = kFile | PageBits::exclusive, .page_count = 1},
                                 {.bits = kFile | PageBits::exclusive | PageBits::huge, .page_count = 2}}));
  const std::vector<FileMapping> found = file_mappings(walk);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].once_bytes, 6 * kPageBytes);
  EXPECT_EQ(found[0].many_bytes, 5 * kPageBytes);
  EXPECT_EQ(found[0].copied_bytes, 4 * kPageBytes);
  EXPECT_EQ(found[0].once, (std::vector<AddressRange>{pages(100, 103), pages(114, 117)}));
}

TEST(FileMappings, LeavesSharedMemoryAndMappingsWithoutPageCache) {
  constexpr std::uint32_t kFile = PageBits::present | PageBits::file;
  PageWalk walk;
  walk.vmas.push_back(vma(trace::Backing::shmem, {{.bits = kFile | PageBits::exclusive, .page_count = 3}}));
  walk.vmas.push_back(vma(trace::Backing::file, {{.bits = PageBits::present, .page_count = 3}}));
  EXPECT_TRUE(file_mappings(walk).empty());
}

}  // namespace
}  // namespace whyrss::file_reclaim_test
