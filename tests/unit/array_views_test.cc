// Large arrays that only small views keep: found in small-object pools, joined with the lines that made them.
#include "collect/array_views.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <deque>
#include <memory>

#include "collect/pymalloc_pools.h"
#include "ingest/retained_views.h"
#include "shim/trace/liveness_format.h"

namespace whyrss {
namespace {

constexpr std::uint64_t kPool = 4096;
constexpr std::uint64_t kBlock = 96;

std::uint64_t address_of(const void* object) { return reinterpret_cast<std::uint64_t>(object); }

// A pool of CPython's in this process, with array objects as numpy lays them out.
class FakePool {
 public:
  FakePool() : pool_(static_cast<std::byte*>(std::aligned_alloc(kPool, kPool))) {
    std::memset(pool_, 0, kPool);
    type_[3] = address_of("numpy.ndarray");
    other_type_[3] = address_of("numpy.ndarrays");
  }
  FakePool(const FakePool&) = delete;
  FakePool& operator=(const FakePool&) = delete;
  ~FakePool() { std::free(pool_); }

  // The address of an array of `rows` rows with `columns` doubles each; `base` 0: it owns its data.
  std::uint64_t add(std::int64_t rows, std::int64_t columns, std::uint64_t base, std::uint64_t references) {
    auto& dimensions = shapes_.emplace_back(std::array<std::int64_t, 2>{rows, columns});
    auto& strides = shapes_.emplace_back(std::array<std::int64_t, 2>{columns * 8, 8});
    return put({.references = references,
                .type = address_of(&type_),
                .data = 0x5000'0000 + 0x100'0000 * count_,
                .dimension_count = 2,
                .padding = 0,
                .dimensions = address_of(&dimensions),
                .strides = address_of(&strides),
                .base = base,
                .description = 0,
                .flags = base == 0 ? 4 : 0,
                .padding2 = 0});
  }
  std::uint64_t add_other(std::uint64_t base) {
    const std::uint64_t address = add(1, 1, base, 1);
    const std::uint64_t type = address_of(&other_type_);
    std::memcpy(reinterpret_cast<void*>(address + 8), &type, sizeof type);
    return address;
  }

  std::vector<trace::RetainingView> find() {
    PoolHead head{};
    head.live_blocks = static_cast<std::uint32_t>(count_);
    head.size_class = kBlock / 16 - 1;
    head.next_offset = static_cast<std::uint32_t>(sizeof head + count_ * kBlock);
    head.most_next_offset = kPool - kBlock;
    std::memcpy(pool_, &head, sizeof head);
    Liveness liveness;
    liveness.pool_bytes = kPool;
    liveness.ranges = {
        {.start = address_of(pool_), .pages = {trace::PageLiveness::pymalloc | trace::PageLiveness::ever_held | 1}}};
    return find_retaining_views(TargetMemory(getpid()), liveness);
  }

 private:
  std::uint64_t put(const ArrayObject& object) {
    std::byte* at = pool_ + sizeof(PoolHead) + count_++ * kBlock;
    std::memcpy(at, &object, sizeof object);
    return address_of(at);
  }

  std::byte* pool_;
  std::array<std::uint64_t, 8> type_{}, other_type_{};  // PyTypeObject as far as its name
  std::deque<std::array<std::int64_t, 2>> shapes_;      // elements stay where they are
  std::uint64_t count_ = 0;
};

TEST(RetainingViews, AreFoundWhereNothingElseHoldsTheArray) {
  FakePool pool;
  const std::uint64_t owner = pool.add(1000, 512, 0, 2);
  const std::uint64_t first = pool.add(1, 32, owner, 1);
  const std::uint64_t second = pool.add(1, 16, owner, 1);
  const auto found = pool.find();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].view, first);
  EXPECT_EQ(found[1].view, second);
  EXPECT_EQ(found[0].buffer, found[1].buffer);
  EXPECT_EQ(found[0].buffer_bytes, 1000U * 512U * 8U);
  EXPECT_EQ(found[0].view_bytes, 32U * 8U);
}

TEST(RetainingViews, AreNotOfAnArrayThatIsHeldItself) {
  FakePool pool;
  const std::uint64_t owner = pool.add(1000, 512, 0, 2);  // by its view, and by a variable
  pool.add(1, 32, owner, 1);
  EXPECT_TRUE(pool.find().empty());
}

TEST(RetainingViews, AreNotThoseThatShowMuchOfIt) {
  FakePool pool;
  const std::uint64_t owner = pool.add(1000, 512, 0, 1);
  pool.add(500, 512, owner, 1);
  const std::uint64_t together = pool.add(1000, 512, 0, 3);
  for (int i = 0; i < 3; ++i) pool.add(25, 512, together, 1);
  EXPECT_TRUE(pool.find().empty());
}

TEST(RetainingViews, AreNotOfSmallArraysOrOtherObjects) {
  FakePool pool;
  const std::uint64_t small = pool.add(100, 32, 0, 1);
  pool.add(1, 1, small, 1);
  const std::uint64_t owner = pool.add(1000, 512, 0, 1);
  pool.add_other(owner);
  EXPECT_TRUE(pool.find().empty());
}

TEST(RetainingViews, SurviveArraysWithNonsenseInThem) {
  FakePool pool;
  const std::uint64_t owner = pool.add(1000, 512, 0, 1);
  const std::uint64_t view = pool.add(1, 32, owner, 1);
  const std::uint64_t nowhere = 24;
  std::memcpy(reinterpret_cast<void*>(view + offsetof(ArrayObject, dimensions)), &nowhere, sizeof nowhere);
  EXPECT_TRUE(pool.find().empty());
  const std::uint64_t no_type = 64;
  std::memcpy(reinterpret_cast<void*>(view + offsetof(ArrayObject, type)), &no_type, sizeof no_type);
  EXPECT_TRUE(pool.find().empty());
}

TEST(RetainedViews, AreSummedByTheLinesThatMadeThem) {
  // Given two buffers of one line with three views, of which two have a known line
  constexpr StackId kMaker{1}, kViewer{2};
  AddressSpace space;
  space.allocate(0x10000, 1'000'000, kMaker);
  space.allocate(0x200000, 1'000'000, kMaker);
  LiveSet objects;
  objects.allocate({.address = 0x900000, .size_bytes = 96, .stack = kViewer});
  objects.allocate({.address = 0x900060, .size_bytes = 96, .stack = kViewer});
  const WalkViews views{.walk_end_ns = 1,
                        .views = {{.view = 0x900000, .buffer = 0x10010, .buffer_bytes = 900'000, .view_bytes = 8},
                                  {.view = 0x900060, .buffer = 0x10010, .buffer_bytes = 900'000, .view_bytes = 16},
                                  {.view = 0x9000c0, .buffer = 0x200010, .buffer_bytes = 900'000, .view_bytes = 8}}};
  std::vector<RetainedViews> sums;
  sum_views(views, space, objects, 3.5, sums);
  // Then the buffer with two views counts once
  ASSERT_EQ(sums.size(), 2U);
  EXPECT_EQ(sums[0].viewed_at, kEmptyStack);
  EXPECT_EQ(sums[0].buffer_bytes, 900'000);
  EXPECT_EQ(sums[1].viewed_at, kViewer);
  EXPECT_EQ(sums[1].made_at, kMaker);
  EXPECT_EQ(sums[1].view_count, 2);
  EXPECT_EQ(sums[1].buffer_count, 1);
  EXPECT_EQ(sums[1].time_s, 3.5);
}

TEST(RetainedViews, AreReadOnlyWhole) {
  const trace::ViewsHeader header{.walk_end_ns = 7};
  const trace::RetainingView view{.view = 1, .buffer = 2, .buffer_bytes = 3, .view_bytes = 4};
  std::vector<std::byte> payload(sizeof header + sizeof view);
  std::memcpy(payload.data(), &header, sizeof header);
  std::memcpy(payload.data() + sizeof header, &view, sizeof view);
  const auto read = read_views(payload);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->walk_end_ns, 7U);
  ASSERT_EQ(read->views.size(), 1U);
  EXPECT_EQ(read->views[0].buffer_bytes, 3U);
  for (const std::size_t size : {0U, 7U, 9U, 39U}) EXPECT_FALSE(read_views(Bytes(payload).first(size))) << size;
}

}  // namespace
}  // namespace whyrss
