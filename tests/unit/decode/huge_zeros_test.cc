// Frames of what huge pages hold, and whose memory the zeros on them are.
#include "decode/huge_zeros.h"

#include <gtest/gtest.h>

#include <cstring>

#include "attribute/attribute.h"
#include "shim/trace/recording_format.h"

namespace whyrss::huge_zeros_test {
namespace {

using trace::HugePage;
constexpr std::uint64_t kPage = 4096, kHuge = HugePage::bytes;

std::vector<std::byte> frame(std::uint32_t stride, const std::vector<HugePage>& pages) {
  const trace::HugePagesHeader header{.walk_end_ns = 7, .stride = stride, .reserved = 0};
  std::vector<std::byte> payload(sizeof header + pages.size() * sizeof(HugePage));
  std::memcpy(payload.data(), &header, sizeof header);
  if (!pages.empty()) std::memcpy(payload.data() + sizeof header, pages.data(), pages.size() * sizeof(HugePage));
  return payload;
}

constexpr std::uint64_t kAll = ~std::uint64_t{0};

TEST(HugeZeros, OfPagesThatHoldOtherBytesToo) {
  const HugePage sparse{.start = kHuge, .zero = {kAll - 1, kAll, kAll, kAll, kAll, kAll, kAll, kAll >> 1}};
  const HugePage nothing_but{.start = 2 * kHuge, .zero = {kAll, kAll, kAll, kAll, kAll, kAll, kAll, kAll}};
  const HugePage full{.start = 4 * kHuge, .zero = {}};
  const auto zeros = read_huge_zeros(frame(3, {sparse, nothing_but, full}));
  ASSERT_TRUE(zeros);
  EXPECT_EQ(zeros->walk_end_ns, 7U);
  EXPECT_EQ(zeros->stride, 3U);
  EXPECT_EQ(zeros->ranges, (std::vector<Range>{{kHuge + kPage, 2 * kHuge - kPage}}));
}

TEST(HugeZeros, DamagedFramesAreNone) {
  EXPECT_FALSE(read_huge_zeros({}));
  EXPECT_FALSE(read_huge_zeros(frame(0, {})));
  EXPECT_FALSE(read_huge_zeros(frame(kAll & 0xffffffff, {})));
  EXPECT_FALSE(read_huge_zeros(frame(1, {{.start = kHuge + kPage, .zero = {}}})));
  EXPECT_FALSE(read_huge_zeros(frame(1, {{.start = 2 * kHuge, .zero = {}}, {.start = kHuge, .zero = {}}})));
  EXPECT_FALSE(read_huge_zeros(frame(1, {{.start = kAll - kHuge + 1, .zero = {}}})));
  auto cut = frame(1, {{.start = kHuge, .zero = {}}});
  cut.pop_back();
  EXPECT_FALSE(read_huge_zeros(cut));
}

TEST(HugeZeros, BelongToTheSiteOfTheirPages) {
  constexpr StackId kMine{1}, kBlock{2};
  Evidence evidence;
  evidence.traced = true;
  evidence.vmas = {{.start = kHuge, .end = 3 * kHuge, .path = "", .writable = true}};
  evidence.runs = {{.start = kHuge, .end = 3 * kHuge, .exclusive = true, .huge = true}};
  evidence.owned = {{.start = kHuge, .end = 2 * kHuge, .owner = Owner::program, .stack = kMine},
                    {.start = 2 * kHuge, .end = 3 * kHuge, .owner = Owner::block, .stack = kBlock}};
  evidence.has_huge = true;
  evidence.huge_stride = 2;
  evidence.huge_zeros = {{kHuge + kPage, kHuge + 11 * kPage}, {2 * kHuge - kPage, 2 * kHuge + 3 * kPage}};
  const Account account = attribute(evidence);
  EXPECT_TRUE(account.has_huge);
  ASSERT_EQ(account.slices.size(), 2U);
  for (const Slice& slice : account.slices)
    EXPECT_EQ(slice.huge_bytes, static_cast<std::int64_t>(2 * (slice.site.stack == kMine ? 11 : 3) * kPage));
}

}  // namespace
}  // namespace whyrss::huge_zeros_test
