// Reading where a pointer may lead anywhere: what is not there is zero and said, nothing crashes.
#include "shim/python_access.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

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

}  // namespace
}  // namespace whyrss::shim
