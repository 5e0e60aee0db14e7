// Reading where a pointer may lead anywhere: what is not there is zero and said, nothing crashes.
#include "shim/stacks/python_access.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace whyrss::shim {
namespace {

// Three pages, of which the middle one can be read.
class ProbedReaderTest : public testing::Test {
 protected:
  void SetUp() override {
    memory_ = static_cast<std::byte*>(
        mmap(nullptr, 3 * kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(memory_, MAP_FAILED);
    page_ = memory_ + kPageBytes;
    for (std::size_t i = 0; i < kPageBytes; ++i) page_[i] = std::byte{0x5a};
    ASSERT_EQ(mprotect(memory_, kPageBytes, PROT_NONE), 0);
    ASSERT_EQ(munmap(memory_ + 2 * kPageBytes, kPageBytes), 0);
  }
  void TearDown() override { munmap(memory_, 2 * kPageBytes); }

  ProbedReader reader_;
  std::byte* memory_ = nullptr;
  std::byte* page_ = nullptr;
};

TEST_F(ProbedReaderTest, ReadsWhatIsThere) {
  EXPECT_EQ(reader_.load<std::uint64_t>(page_, 0), 0x5a5a5a5a5a5a5a5aU);
  EXPECT_EQ(reader_.load<std::uint64_t>(page_, kPageBytes - 8), 0x5a5a5a5a5a5a5a5aU);
  EXPECT_EQ(reader_.load<std::uint8_t>(page_, kPageBytes - 1), 0x5a);
  EXPECT_TRUE(reader_.has_range(page_, kPageBytes));
  EXPECT_FALSE(reader_.failed());
}

TEST_F(ProbedReaderTest, ReadsNothingElsewhere) {
  const auto fails = [](const void* base, std::size_t offset) {
    ProbedReader reader;
    const void* volatile unknown = base;  // to the compiler
    return reader.load<std::uint64_t>(unknown, offset) == 0 && reader.failed();
  };
  EXPECT_TRUE(fails(page_, kPageBytes));
  EXPECT_TRUE(fails(page_, std::size_t{0} - 8));
  EXPECT_TRUE(fails(page_, 4)) << "not aligned: it could lie on two pages";
  EXPECT_TRUE(fails(nullptr, 0));
  EXPECT_TRUE(fails(nullptr, 72));
  EXPECT_TRUE(fails(reinterpret_cast<const void*>(0x5a5a5a5a5a5a5a58), 0)) << "no address";
  EXPECT_TRUE(fails(reinterpret_cast<const void*>(0xffffffff81000000), 0)) << "the kernel's";
  EXPECT_TRUE(fails(reinterpret_cast<const void*>(UINT64_MAX - 7), 0));
}

TEST_F(ProbedReaderTest, RangesEndWhereMemoryDoes) {
  const auto fails = [](const void* start, std::size_t size_bytes) {
    ProbedReader reader;
    return !reader.has_range(start, size_bytes) && reader.failed();
  };
  EXPECT_TRUE(fails(page_, kPageBytes + 1));
  EXPECT_TRUE(fails(page_ - 1, 2));
  EXPECT_TRUE(fails(page_ + 8, SIZE_MAX)) << "wraps around";
  EXPECT_TRUE(fails(nullptr, 1));
  EXPECT_TRUE(reader_.has_range(nullptr, 0));
}

TEST_F(ProbedReaderTest, AFailureIsRememberedAndReadingGoesOn) {
  EXPECT_EQ(reader_.load<std::uint32_t>(memory_, 0), 0U);
  EXPECT_EQ(reader_.load<std::uint32_t>(page_, 0), 0x5a5a5a5aU);
  EXPECT_TRUE(reader_.failed());
}

TEST_F(ProbedReaderTest, AWordIsComparedWhereMemoryMayGo) {
  const auto at = [](std::byte* place) { return reinterpret_cast<std::uint32_t*>(place); };
  EXPECT_TRUE(holds_word(at(page_ + 8), 0x5a5a5a5aU));
  EXPECT_FALSE(holds_word(at(page_ + 8), 0x5a5a5a5bU));
  EXPECT_FALSE(holds_word(at(memory_), 0)) << "PROT_NONE";
  EXPECT_FALSE(holds_word(at(page_ + kPageBytes), 0)) << "unmapped";
  EXPECT_FALSE(holds_word(nullptr, 0));
  EXPECT_EQ(page_[8], std::byte{0x5a});
}

// Pages of this process that nobody else maps (bit 56 of pagemap).
std::size_t exclusive_pages(const std::byte* start, std::size_t count) {
  const int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  std::vector<std::uint64_t> entries(count);
  const auto offset = static_cast<off_t>(reinterpret_cast<std::uint64_t>(start) / kPageBytes * 8);
  const ssize_t got = pread(pagemap, entries.data(), count * 8, offset);
  close(pagemap);
  if (got != static_cast<ssize_t>(count * 8)) return SIZE_MAX;
  return static_cast<std::size_t>(
      std::ranges::count_if(entries, [](std::uint64_t entry) { return (entry >> 56 & 1) != 0; }));
}

TEST(ReadablePage, ProbesCopyNothingOfWhatAForkShares) {
  constexpr std::size_t kPages = 64;
  auto* pages = static_cast<std::byte*>(
      mmap(nullptr, kPages * kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(pages, MAP_FAILED);
  madvise(pages, kPages * kPageBytes, MADV_NOHUGEPAGE);
  std::memset(pages, 7, kPages * kPageBytes);
  ASSERT_EQ(exclusive_pages(pages, kPages), kPages);
  const pid_t child = fork();
  if (child == 0) {
    bool good = exclusive_pages(pages, kPages) == 0;
    for (std::size_t i = 0; i < kPages; ++i) {
      std::byte* page = pages + i * kPageBytes;
      good = good && is_page_readable(reinterpret_cast<std::uint64_t>(page)) &&
             holds_word(reinterpret_cast<const std::uint32_t*>(page), 0x07070707U);
    }
    _exit(good && exclusive_pages(pages, kPages) == 0 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  munmap(pages, kPages * kPageBytes);
}

}  // namespace
}  // namespace whyrss::shim
