#include "shim/sys/own_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <vector>

#include "shim/trace/own_calls.h"

namespace whyrss::shim {
namespace {

constexpr std::size_t kSize = 3 * 4096;

bool is_zero(const void* memory, std::size_t size_bytes) {
  const auto* bytes = static_cast<const unsigned char*>(memory);
  return std::all_of(bytes, bytes + size_bytes, [](unsigned char byte) { return byte == 0; });
}

TEST(OwnMemory, ComesFromTheReserveWhileTheKernelIsClosed) {
  trace::close_kernel();
  EXPECT_EQ(map_own(kSize), nullptr);  // nothing was set aside
  trace::open_kernel();

  auto* reserve = static_cast<unsigned char*>(map_reserve());
  ASSERT_NE(reserve, nullptr);
  EXPECT_EQ(map_reserve(), nullptr);  // once
  void* mapped = map_own(kSize);
  ASSERT_NE(mapped, nullptr);

  trace::close_kernel();
  auto* first = static_cast<unsigned char*>(map_own(kSize));
  auto* second = static_cast<unsigned char*>(map_own(100));
  ASSERT_TRUE(first >= reserve && first + kSize <= reserve + kReserveBytes);
  ASSERT_TRUE(second >= reserve && second + 4096 <= reserve + kReserveBytes);
  EXPECT_TRUE(second >= first + kSize || second + 4096 <= first);
  EXPECT_EQ(map_own(kReserveBytes), nullptr);
  EXPECT_NE(map_own(4096), nullptr);  // what was too large has taken nothing

  // What is given back serves again, and reads as zero.
  std::fill(first, first + kSize, 0xaa);
  unmap_own(first, kSize);
  EXPECT_EQ(map_own(kSize), first);
  EXPECT_TRUE(is_zero(first, kSize));
  std::fill_n(static_cast<unsigned char*>(mapped), kSize, 0xbb);
  unmap_own(mapped, kSize);
  EXPECT_EQ(map_own(kSize), mapped);
  EXPECT_TRUE(is_zero(mapped, kSize));
  std::fill(first, first + kSize, 0xcc);
  empty_own(first, kSize);
  EXPECT_TRUE(is_zero(first, kSize));

  trace::open_kernel();
  unmap_own(first, kSize);  // never unmapped out of the reserve
  EXPECT_TRUE(is_zero(reserve, kReserveBytes));
  unmap_own(mapped, kSize);
}

std::size_t count_mappings() {
  std::ifstream maps("/proc/self/maps");
  return static_cast<std::size_t>(
      std::count(std::istreambuf_iterator<char>(maps), std::istreambuf_iterator<char>(), '\n'));
}

TEST(OwnMemory, ThatOfThreadsIsMappedForSeveralAtOnceAndKept) {
  constexpr std::size_t kThreads = 40;
  std::vector<unsigned char*> blocks(kThreads);
  const std::size_t before = count_mappings();
  for (auto& block : blocks) {
    block = static_cast<unsigned char*>(map_own_of_thread(kSize));
    ASSERT_NE(block, nullptr);
    ASSERT_TRUE(is_zero(block, kSize));
    std::fill_n(block, kSize, 0xcc);
  }
  // Each mapping lies between two guard pages: 3 lines for each of the first, and for each of what 16 share.
  EXPECT_LE(count_mappings() - before, 3 * (4 + (kThreads - 4 + 15) / 16) + 2);
  std::ranges::sort(blocks);
  for (std::size_t i = 1; i < kThreads; ++i) EXPECT_GE(blocks[i], blocks[i - 1] + kSize);

  const std::size_t mapped = count_mappings();
  for (auto* block : blocks) unmap_own_of_thread(block, kSize);
  for (std::size_t i = 0; i < kThreads; ++i) {
    auto* again = static_cast<unsigned char*>(map_own_of_thread(kSize));
    ASSERT_NE(again, nullptr);
    EXPECT_TRUE(is_zero(again, kSize));
  }
  EXPECT_EQ(count_mappings(), mapped);
}

}  // namespace
}  // namespace whyrss::shim
