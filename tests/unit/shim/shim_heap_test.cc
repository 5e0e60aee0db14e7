// Every entry of the heap family is seen exactly once, under every allocator.
#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "preload_harness.h"

namespace whyrss::testing {
namespace {

using trace::RecordKind;

// 16 MiB would be mmapped by some allocators, 100 kB is large for the shim and small for them.
constexpr std::uint64_t kBytes = 100'003 / 256 * 256;

constexpr const char* kShapes[] = {"malloc",
                                   "calloc",
                                   "realloc_new",
                                   "realloc_grown",
                                   "realloc_shrunk",
                                   "realloc_failed",
                                   "realloc_zero",
                                   "reallocarray",
                                   "posix_memalign",
                                   "aligned_alloc",
                                   "memalign",
                                   "valloc",
                                   "pvalloc",
                                   "free_sized",
                                   "free_aligned_sized",
                                   "new",
                                   "new_array",
                                   "new_nothrow",
                                   "new_array_nothrow",
                                   "new_aligned",
                                   "new_array_aligned",
                                   "new_aligned_nothrow",
                                   "new_array_aligned_nothrow",
                                   "delete_sized",
                                   "delete_array_sized",
                                   "delete_aligned_sized",
                                   "delete_array_aligned_sized",
                                   "mallocx",
                                   "rallocx"};

constexpr const char* kAllocators[] = {"glibc", "libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libmimalloc.so.2"};

std::string library_of(const std::string& allocator) {
  if (allocator == "glibc") return "";
  return std::string(WHYRSS_ALLOCATOR_DIR) + "/" + allocator;
}

class HeapShape : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(HeapShape, SeenExactlyOnce) {
  // Given a program that allocates and releases one large block by one named pair of calls
  const auto [shape, allocator] = GetParam();
  const std::string library = library_of(allocator);
  if (!library.empty() && access(library.c_str(), R_OK) != 0) GTEST_SKIP() << library << " is not installed";
  if (std::string(shape) == "pvalloc" && library.find("jemalloc") != std::string::npos)
    GTEST_SKIP() << "jemalloc has no pvalloc: freeing glibc's crashes without us too";
  // When it runs with the library in front of the allocator
  Preloaded preloaded;
  preloaded.pretend_reader();
  const Outcome outcome = preloaded.run({WHYRSS_HEAP_SHAPES, shape, std::to_string(kBytes)}, library);
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(outcome.output, "");
  // Then there is one allocate of that size and one release of the same address, in this order
  std::vector<trace::BlockRecord> allocated;
  std::vector<trace::BlockRecord> released;
  for (const Event& event : outcome.marked()) {
    if (event.kind() == RecordKind::allocate) allocated.push_back(event.as<trace::BlockRecord>());
    if (event.kind() == RecordKind::release) released.push_back(event.as<trace::BlockRecord>());
    EXPECT_NE(event.kind(), RecordKind::release_undone);
  }
  ASSERT_EQ(allocated.size(), 1U);
  ASSERT_EQ(released.size(), 1U);
  EXPECT_GE(allocated[0].size_bytes, kBytes);  // usable bytes
  EXPECT_EQ(allocated[0].sampled_bytes, 0U);
  EXPECT_EQ(allocated[0].address, released[0].address);
  EXPECT_LT(allocated[0].header.time_ns, released[0].header.time_ns);
  EXPECT_EQ(outcome.dropped, 0U);
}

std::string name_of(const ::testing::TestParamInfo<HeapShape::ParamType>& info) {
  std::string allocator = std::get<1>(info.param);
  std::replace_if(
      allocator.begin(), allocator.end(), [](char letter) { return letter == '.'; }, '_');
  return std::string(std::get<0>(info.param)) + "_" + allocator;
}

INSTANTIATE_TEST_SUITE_P(AllEntries, HeapShape,
                         ::testing::Combine(::testing::ValuesIn(kShapes), ::testing::ValuesIn(kAllocators)), name_of);

// Buffers that a loop gives back at once: their records are taken back, and neither they nor a chunk are used up.
TEST(ShimHeap, BuffersThatComeAndGoLeaveNoRecords) {
  for (const char* shape : {"malloc", "new", "realloc_shrunk", "realloc_failed"}) {
    Preloaded preloaded;
    preloaded.pretend_reader();
    const Outcome outcome = preloaded.run({WHYRSS_HEAP_SHAPES, shape, "65536", "20000"});
    ASSERT_EQ(outcome.status, 0) << outcome.output;
    std::size_t blocks = 0;
    for (const Event& event : outcome.marked())
      blocks += event.kind() == RecordKind::allocate || event.kind() == RecordKind::release ||
                        event.kind() == RecordKind::release_undone
                    ? 1
                    : 0;
    EXPECT_LE(blocks, 20U) << shape;  // of those in which page faults were sampled
    EXPECT_EQ(outcome.dropped, 0U);
    ASSERT_EQ(outcome.slots.size(), 1U);
    const std::uint64_t logged = outcome.slots[0]->large_allocations.load();
    EXPECT_GE(logged + outcome.slots[0]->small_allocations.load(), 20'000U);
    EXPECT_GE(logged, 1000U);    // as many as cost no time
    EXPECT_LT(logged, 10'000U);  // the others were counted
    // Nothing is left of them in what the collector goes by.
    EXPECT_LT(outcome.slots[0]->live_bytes.load(), 1 << 20);
    EXPECT_GT(outcome.slots[0]->live_bytes.load(), -(1 << 20));
  }
}

// What is counted needs a table of live bytes, and sizes that the countdown never takes are logged at any rate.
TEST(ShimHeap, EachLargeBlockIsLoggedWhereItCannotBeCounted) {
  struct Case {
    const char* size_bytes;
    const char* options;
  };
  for (const auto [size_bytes, options] :
       {Case{"65536", "liveness=off"}, Case{"131072", "liveness=on"}, Case{"65536", "mode=exact"}}) {
    Preloaded preloaded;
    const Outcome outcome =
        preloaded.run({WHYRSS_HEAP_SHAPES, "malloc", size_bytes, "20000"}, "", {std::string("WHYRSS_OPTS=") + options});
    ASSERT_EQ(outcome.status, 0) << outcome.output;
    ASSERT_EQ(outcome.slots.size(), 1U);
    EXPECT_GE(outcome.slots[0]->large_allocations.load(), 20'000U) << size_bytes << " " << options;
  }
}

TEST(ShimHeap, ExactModeKeepsEachRecord) {
  Preloaded preloaded;
  preloaded.pretend_reader();
  const Outcome outcome = preloaded.run({WHYRSS_HEAP_SHAPES, "malloc", "65536", "100"}, "", {"WHYRSS_OPTS=mode=exact"});
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  std::size_t allocated = 0;
  for (const Event& event : outcome.marked()) allocated += event.kind() == RecordKind::allocate ? 1 : 0;
  EXPECT_EQ(allocated, 100U);
}

struct Counted {
  std::uint64_t allocations = 0, bytes = 0, releases = 0;
};

Counted counted_in(const std::string& shape, const char* times, const std::string& library) {
  Preloaded preloaded;
  const Outcome outcome = preloaded.run({WHYRSS_HEAP_SHAPES, shape, "1024", times}, library);
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  if (outcome.slots.size() != 1) return {};
  const trace::ProcessSlot& slot = *outcome.slots[0];
  return {slot.small_allocations.load(), slot.small_allocated_bytes.load(), slot.small_releases.load()};
}

// Only operator new and delete may come back to us as malloc and free.
std::vector<const char*> operator_shapes() {
  std::vector<const char*> shapes;
  for (const char* shape : kShapes) {
    const std::string_view name = shape;
    if (name.starts_with("new") || name.starts_with("delete")) shapes.push_back(shape);
  }
  return shapes;
}

class OperatorShape : public HeapShape {};

TEST_P(OperatorShape, SmallBlocksAreCountedOnceEach) {
  const auto [shape, allocator] = GetParam();
  const std::string library = library_of(allocator);
  if (!library.empty() && access(library.c_str(), R_OK) != 0) GTEST_SKIP() << library << " is not installed";
  // 10'000 pairs more make 10'000 more of each count, first calls and later ones, inner calls or not
  const Counted few = counted_in(shape, "2", library);
  const Counted many = counted_in(shape, "10002", library);
  EXPECT_EQ(many.allocations - few.allocations, 10'000U);
  EXPECT_GE(many.bytes - few.bytes, 10'240'000U);  // usable bytes
  EXPECT_EQ(many.releases - few.releases, 10'000U);
}

INSTANTIATE_TEST_SUITE_P(Operators, OperatorShape,
                         ::testing::Combine(::testing::ValuesIn(operator_shapes()), ::testing::ValuesIn(kAllocators)),
                         name_of);

class Sampled : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(Sampled, BlocksStandForAll) {
  // Given a program that makes many small blocks, one in some 16 of them sampled
  const auto [liveness, allocator] = GetParam();
  const std::string library = library_of(allocator);
  if (!library.empty() && access(library.c_str(), R_OK) != 0) GTEST_SKIP() << library << " is not installed";
  constexpr double kMean = 16 * 1024;
  constexpr double kTimes = 50'000;
  Preloaded preloaded;
  const Outcome outcome = preloaded.run({WHYRSS_HEAP_SHAPES, "new", "1000", "50000"}, library,
                                        {std::string("WHYRSS_OPTS=sample_bytes=16KiB,liveness=") + liveness});
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(outcome.dropped, 0U);
  // Then the sampled ones, each by its chance, make up all of them, within five standard errors
  double blocks = 0;
  double variance = 0;
  int released = 0;
  int sampled = 0;
  int coarsest = 0;  // of the last samples: fewer than 4,096 are taken at once
  for (const Event& event : outcome.marked()) {
    released += event.kind() == RecordKind::release ? 1 : 0;
    if (event.kind() != RecordKind::allocate) continue;
    const auto block = event.as<trace::BlockRecord>();
    EXPECT_GE(block.size_bytes, 1000U);
    EXPECT_GE(block.sampled_bytes, 1000U);
    EXPECT_NE(block.stack_id, trace::kNoStack);
    constexpr unsigned kShift = trace::BlockRecord::kCoarsenessShift;
    const auto coarseness = static_cast<int>(block.sampled_bytes >> kShift);
    const auto bytes = static_cast<double>(block.sampled_bytes & ((std::uint64_t{1} << kShift) - 1));
    coarsest = std::max(coarsest, coarseness);
    const double chance = 1 - std::exp(-bytes / std::ldexp(kMean, coarseness));
    blocks += 1 / chance;
    variance += (1 - chance) / (chance * chance);
    ++sampled;
  }
  EXPECT_NEAR(blocks, kTimes, 5 * std::sqrt(variance));
  EXPECT_EQ(released, sampled);
  EXPECT_GE(coarsest, 1);
}

INSTANTIATE_TEST_SUITE_P(Allocators, Sampled,
                         ::testing::Combine(::testing::Values("on", "off"), ::testing::ValuesIn(kAllocators)), name_of);

TEST(Heap, ManyLiveBlocksAreReleasedOnceEach) {
  Preloaded preloaded;
  const Outcome outcome = preloaded.run({WHYRSS_GUEST_BEHAVIOUR, "many_blocks"});
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  std::map<std::uint64_t, int> live;
  int blocks = 0;
  for (const Event& event : outcome.events) {
    const auto block = event.as<trace::BlockRecord>();
    if (event.kind() == RecordKind::allocate) {
      ++blocks;
      EXPECT_EQ(live[block.address]++, 0);
    }
    if (event.kind() == RecordKind::release) {
      EXPECT_EQ(live[block.address]--, 1);
    }
  }
  EXPECT_GE(blocks, 3000);
  EXPECT_EQ(outcome.dropped, 0U);
}

TEST(Heap, SmallBlocksAreOnlyCounted) {
  Preloaded preloaded;
  const Outcome outcome = preloaded.run({WHYRSS_HEAP_SHAPES, "new", "1000"});
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  for (const Event& event : outcome.marked()) EXPECT_NE(event.kind(), RecordKind::allocate);
  ASSERT_EQ(outcome.slots.size(), 1U);
  EXPECT_GE(outcome.slots[0]->small_allocations.load(), 1U);
  EXPECT_GE(outcome.slots[0]->small_allocated_bytes.load(), 1000U);
}

}  // namespace
}  // namespace whyrss::testing
