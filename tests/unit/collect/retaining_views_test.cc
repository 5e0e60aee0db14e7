// Large arrays and tensors that only small views keep: found in small-object pools, joined with the lines that made
// them.
#include "collect/python/retaining_views.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <deque>
#include <memory>

#include "collect/python/python_objects.h"
#include "collect/python/tensor_views.h"
#include "collect/read/pymalloc_pools.h"
#include "decode/retained_views.h"
#include "shim/trace/liveness_format.h"

namespace whyrss::retaining_views_test {
namespace {

constexpr std::uint64_t kPool = 4096;
constexpr std::uint64_t kBlock = 96;

std::uint64_t address_of(const void* object) { return reinterpret_cast<std::uint64_t>(object); }

// How versions of torch lay out their counts, and what an object of Python has of its tensor (tensor_views.h).
enum class Torch : std::uint8_t { to_2_3, to_2_9, from_2_10 };

struct FakeStorage {
  StorageWords words;
  std::uint64_t data;
};

// A pool of CPython's in this process, with array objects as numpy lays them out and tensor objects as torch does.
class FakePool {
 public:
  explicit FakePool(Torch torch = Torch::to_2_3)
      : torch_(torch), pool_(static_cast<std::byte*>(std::aligned_alloc(kPool, kPool))) {
    std::memset(pool_, 0, kPool);
    type_[3] = address_of("numpy.ndarray");
    other_type_[3] = address_of("numpy.ndarrays");
    bytes_type_[3] = address_of("bytes");
    tensor_type_[3] = address_of("Tensor\0and as many bytes as are read of a name");
  }
  FakePool(const FakePool&) = delete;
  FakePool& operator=(const FakePool&) = delete;
  ~FakePool() { std::free(pool_); }

  // The address of an array of `rows` rows with `columns` doubles each; `base` 0: it owns its data.
  std::uint64_t add(std::int64_t rows, std::int64_t columns, std::uint64_t base, std::uint64_t references) {
    return add_strided({rows, columns}, {columns * 8, 8}, base, references);
  }
  std::uint64_t add_strided(std::array<std::int64_t, 2> shape, std::array<std::int64_t, 2> strides_bytes,
                            std::uint64_t base, std::uint64_t references) {
    auto& dimensions = shapes_.emplace_back(shape);
    auto& strides = shapes_.emplace_back(strides_bytes);
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
  // The address of a bytes object, which lies in no pool.
  std::uint64_t add_bytes(std::uint64_t size, std::uint64_t references) {
    return address_of(&bytes_.emplace_back(std::array{references, address_of(&bytes_type_), size, std::uint64_t{0}}));
  }
  // The address of an array of doubles that frombuffer() made of it.
  std::uint64_t add_from(std::uint64_t bytes, std::int64_t count, std::uint64_t references) {
    const std::uint64_t array = add(1, count, bytes, references), data = bytes + 32;
    std::memcpy(reinterpret_cast<void*>(array + offsetof(ArrayObject, data)), &data, sizeof data);
    return array;
  }
  std::uint64_t add_other(std::uint64_t base) {
    const std::uint64_t address = add(1, 1, base, 1);
    const std::uint64_t type = address_of(&other_type_);
    std::memcpy(reinterpret_cast<void*>(address + 8), &type, sizeof type);
    return address;
  }

  // A storage of `rows` rows with 512 doubles, which `references` refer to.
  FakeStorage& add_storage(std::uint64_t rows, std::uint64_t references) {
    const std::uint64_t data = 0x7000'0000 + 0x100'0000 * storages_.size();
    StorageWords words{0x4000'0000};
    const std::size_t first = set_counts(words, references);
    words[first] = data;
    words[first + 4] = rows * 512 * 8;
    return storages_.emplace_back(FakeStorage{.words = words, .data = data});
  }
  // The address of a tensor of `rows` rows with 512 doubles each, the first of them at `first_row`. `dropped`: by
  // Python, and `holders` of C++ keep it.
  std::uint64_t add_tensor(const FakeStorage& storage, std::int64_t first_row, std::int64_t rows, bool dropped = false,
                           std::uint64_t holders = 1) {
    const bool has_flag = torch_ != Torch::from_2_10;
    TensorWords& impl = impls_.emplace_back(TensorWords{0x4100'0000});
    const std::size_t first = set_counts(impl, has_flag || !dropped ? holders : holders + 1);
    impl[first] = address_of(&storage.words);
    const std::array<std::int64_t, 14> geometry{2, rows, 512, 0, 0, 0, 512, 1, 0, 0, 0, first_row * 512, rows * 512, 7};
    std::memcpy(geometry_of_last(), geometry.data(), sizeof geometry);
    const std::uint64_t tensor = address_of(&impl);
    const TensorObject object{.references = 1,
                              .type = address_of(&tensor_type_),
                              .first = has_flag ? (dropped ? 1U : 0U) : tensor,
                              .next = has_flag ? tensor : 0};
    std::byte* at = pool_ + sizeof(PoolHead) + count_++ * kBlock + 16;
    std::memcpy(at, &object, sizeof object);
    return address_of(at);
  }
  std::uint64_t& last_storage_address() { return impls_.back()[torch_ == Torch::to_2_3 ? 3 : 2]; }
  std::uint64_t* geometry_of_last() { return &last_storage_address() + (torch_ == Torch::from_2_10 ? 5 : 6); }

  std::vector<trace::RetainingView> find() {
    PoolHead head{};
    head.live_blocks = static_cast<std::uint32_t>(count_);
    head.size_class = kBlock / 16 - 1;
    head.next_offset = static_cast<std::uint32_t>(sizeof head + count_ * kBlock);
    head.most_next_offset = kPool - kBlock;
    std::memcpy(pool_, &head, sizeof head);
    Liveness liveness;
    liveness.pool_bytes = kPool;
    liveness.pools = {{.address = address_of(pool_), .block_bytes = kBlock}};
    return find_retaining_views(TargetMemory(getpid()), liveness, true);
  }

 private:
  std::uint64_t put(const ArrayObject& object) {
    std::byte* at = pool_ + sizeof(PoolHead) + count_++ * kBlock;
    std::memcpy(at, &object, sizeof object);
    return address_of(at);
  }

  // Where the words behind the counts begin.
  template <typename Words>
  std::size_t set_counts(Words& words, std::uint64_t references) const {
    const bool in_one_word = torch_ != Torch::to_2_3;
    words[1] = references + (in_one_word ? std::uint64_t{1} << 32 : 0);
    if (torch_ == Torch::from_2_10) words[1] += std::uint64_t{1} << 63;  // Python has an object of it
    if (!in_one_word) words[2] = 1;
    return in_one_word ? 2 : 3;
  }

  Torch torch_;
  std::byte* pool_;
  std::array<std::uint64_t, 8> type_{}, other_type_{}, tensor_type_{},
      bytes_type_{};                                // PyTypeObject as far as its name
  std::deque<std::array<std::int64_t, 2>> shapes_;  // elements stay where they are
  std::deque<std::array<std::uint64_t, 4>> bytes_;
  std::deque<TensorWords> impls_;
  std::deque<FakeStorage> storages_;
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

TEST(RetainingViews, ShowTheirElementsWhereverTheyLie) {
  FakePool pool;
  const std::uint64_t owner = pool.add(1000, 512, 0, 1);
  pool.add_strided({10, 5}, {100 * 512 * 8, 8}, owner, 1);  // [::100, :5]
  const std::uint64_t halved = pool.add(1000, 512, 0, 1);
  pool.add_strided({500, 512}, {2 * 512 * 8, 8}, halved, 1);
  const std::uint64_t repeated = pool.add(1000, 512, 0, 1);
  pool.add_strided({1 << 30, 4}, {0, 8}, repeated, 1);  // broadcast_to
  const auto found = pool.find();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].view_bytes, 10U * 5U * 8U);
  EXPECT_EQ(found[1].view_bytes, 4U * 8U);
}

TEST(RetainingViews, AreNotOfSmallArraysOrOtherObjects) {
  FakePool pool;
  const std::uint64_t small = pool.add(100, 32, 0, 1);
  pool.add(1, 1, small, 1);
  const std::uint64_t owner = pool.add(1000, 512, 0, 1);
  pool.add_other(owner);
  EXPECT_TRUE(pool.find().empty());
}

TEST(RetainingViews, KeepBytesObjects) {
  FakePool pool;
  const std::uint64_t bytes = pool.add_bytes(8'000'000, 2);
  const std::uint64_t whole = pool.add_from(bytes, 1'000'000, 1);
  const std::uint64_t part = pool.add(1, 32, whole, 1);
  const std::uint64_t head = pool.add_from(bytes, 16, 1);
  const auto found = pool.find();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].view, part);
  EXPECT_EQ(found[1].view, head);
  for (const trace::RetainingView& view : found) EXPECT_EQ(view.buffer, bytes);
  EXPECT_EQ(found[0].buffer_bytes, 8'000'000U);
  EXPECT_EQ(found[0].view_bytes + found[1].view_bytes, (32U + 16U) * 8U);
}

TEST(RetainingViews, AreNotOfBytesThatAreHeldOrShown) {
  FakePool pool;
  pool.add_from(pool.add_bytes(8'000'000, 2), 16, 1);                             // a variable has them too
  pool.add(1, 32, pool.add_from(pool.add_bytes(8'000'000, 1), 1'000'000, 2), 1);  // the array of all is held
  pool.add_from(pool.add_bytes(8'000'000, 1), 1'000'000, 1);
  pool.add_from(pool.add_bytes(80'000, 1), 16, 1);
  pool.add(1, 16, pool.add_bytes(8'000'000, 1), 1);  // shows other memory
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

class RetainingTensors : public ::testing::TestWithParam<Torch> {};
INSTANTIATE_TEST_SUITE_P(Layouts, RetainingTensors, ::testing::Values(Torch::to_2_3, Torch::to_2_9, Torch::from_2_10));

TEST_P(RetainingTensors, AreFoundWhereNothingElseHoldsTheStorage) {
  FakePool pool(GetParam());
  const FakeStorage& storage = pool.add_storage(1000, 2);
  const std::uint64_t first = pool.add_tensor(storage, 5, 1);
  const std::uint64_t second = pool.add_tensor(storage, 7, 2);
  const auto found = pool.find();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].view, first - 16);
  EXPECT_EQ(found[1].view, second - 16);
  EXPECT_EQ(found[0].buffer, storage.data);
  EXPECT_EQ(found[0].buffer_bytes, 1000U * 512U * 8U);
  EXPECT_EQ(found[0].view_bytes + found[1].view_bytes, 3U * 512U * 8U);
}

TEST_P(RetainingTensors, KeepTheTensorThatPythonHasDropped) {
  FakePool pool(GetParam());
  const FakeStorage& storage = pool.add_storage(1000, 2);
  pool.add_tensor(storage, 0, 1000, true);  // kept by its view
  pool.add_tensor(storage, 5, 1);
  EXPECT_EQ(pool.find().size(), 1U);
  const FakeStorage& held = pool.add_storage(1000, 2);
  pool.add_tensor(held, 5, 1);
  pool.add_tensor(held, 0, 1000, true, 2);  // by something that C++ keeps too
  EXPECT_EQ(pool.find().size(), 1U);
}

TEST_P(RetainingTensors, AreNotOfAStorageThatIsHeldElsewhere) {
  FakePool pool(GetParam());
  pool.add_tensor(pool.add_storage(1000, 2), 5, 1);  // by a tensor that was not found
  const FakeStorage& held = pool.add_storage(1000, 2);
  pool.add_tensor(held, 0, 1000);
  pool.add_tensor(held, 5, 1);
  EXPECT_TRUE(pool.find().empty());
}

TEST_P(RetainingTensors, ShowTheirElementsWhereverTheyLie) {
  FakePool pool(GetParam());
  pool.add_tensor(pool.add_storage(1000, 1), 0, 10);  // [::100]
  pool.geometry_of_last()[6] = 100 * 512;
  pool.add_tensor(pool.add_storage(1000, 1), 0, 500);  // [::2]
  pool.geometry_of_last()[6] = 2 * 512;
  pool.add_tensor(pool.add_storage(1000, 1), 3, 1000);  // [3].expand(1000, 512)
  pool.geometry_of_last()[6] = 0;
  const auto found = pool.find();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].view_bytes + found[1].view_bytes, 11U * 512U * 8U);
}

TEST_P(RetainingTensors, ShowWhatTheArraysShowThatHoldThem) {
  FakePool pool(GetParam());
  const std::uint64_t tensor = pool.add_tensor(pool.add_storage(1000, 1), 0, 1000);
  const std::uint64_t array = pool.add(1000, 512, tensor, 1);
  pool.add(1, 32, array, 1);  // values.numpy()[0, :32]
  const auto found = pool.find();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].view_bytes, 32U * 8U);
}

TEST_P(RetainingTensors, SurviveTensorsWithNonsenseInThem) {
  FakePool pool(GetParam());
  pool.add_tensor(pool.add_storage(1000, 1), 1000, 1);  // behind its end
  pool.add_tensor(pool.add_storage(1000, 1), 5, 1);
  pool.last_storage_address() = 24;
  pool.add_tensor(pool.add_storage(1000, 1), 5, 1);
  pool.geometry_of_last()[1] = std::uint64_t{1} << 62;
  EXPECT_TRUE(pool.find().empty());
}

TEST(RetainedViews, AreSummedByTheLinesThatMadeThem) {
  // Given two buffers of one line with three views, of which two have a known line
  constexpr StackId kSite{1}, kViewer{2};
  AddressSpace space;
  space.allocate(0x10000, 1'000'000, kSite);
  space.allocate(0x200000, 1'000'000, kSite);
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
  EXPECT_EQ(sums[1].made_at, kSite);
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
}  // namespace whyrss::retaining_views_test
