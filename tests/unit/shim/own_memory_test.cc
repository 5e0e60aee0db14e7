#include "shim/sys/own_memory.h"

#include <gtest/gtest.h>

#include <algorithm>

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

}  // namespace
}  // namespace whyrss::shim
