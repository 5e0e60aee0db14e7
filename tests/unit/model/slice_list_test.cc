// What is packed comes out as it was.
#include "model/slice_list.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace whyrss::slice_list_test {
namespace {

Slice slice(Cause cause, std::uint32_t stack, const char* mapping, std::int64_t bytes, std::int64_t exclusive_bytes) {
  return {.site = {.cause = cause, .stack = StackId{stack}, .mapping = mapping},
          .bytes = bytes,
          .exclusive_bytes = exclusive_bytes};
}

std::vector<Slice> examples() {
  std::vector<Slice> slices{slice(Cause::heap_live, 0xffffffff, "[heap]", std::int64_t{1} << 62, 7),
                            slice(Cause::heap_live, 0, "[heap]", 4096, 4096),
                            slice(Cause::file_cache, 300, "/a/long/path/of/a/file.so", 4096, 0),
                            slice(Cause::heap_live, 301, "", 4096, 4096),
                            slice(Cause::lazy_free, 1, "", -1, 3),
                            slice(Cause::unknown, 2, "[heap]", 0, 0)};
  slices[0].site.in_large_block = true;
  slices[1].variance = 0.1;
  slices[1].huge_bytes = 128;
  slices[2].untouched_bytes = 1'000'000;
  slices[3].touched = {{.stack = StackId{5}, .bytes = 4000, .variance = -2.5, .by_kernel = true},
                       {.stack = kEmptyStack, .bytes = 96}};
  slices[4].advised = {{.stack = StackId{900'000}, .bytes = 1}, {.stack = StackId{3}, .bytes = -2}};
  return slices;
}

void expect_equal(const Slice& is, const Slice& expected) {
  EXPECT_EQ(is.site, expected.site);
  EXPECT_EQ(is.bytes, expected.bytes);
  EXPECT_EQ(is.exclusive_bytes, expected.exclusive_bytes);
  EXPECT_EQ(is.variance, expected.variance);
  EXPECT_EQ(is.huge_bytes, expected.huge_bytes);
  EXPECT_EQ(is.untouched_bytes, expected.untouched_bytes);
  EXPECT_EQ(is.touched, expected.touched);
  EXPECT_EQ(is.advised, expected.advised);
}

void expect_examples(const SliceList& list) {
  const std::vector<Slice> expected = examples();
  ASSERT_EQ(list.size(), expected.size());
  std::size_t number = 0;
  for (auto at = list.begin(); at != SliceList::end(); ++at, ++number) {
    expect_equal(*at, expected[number]);
    EXPECT_EQ(at.mapping(), expected[number].site.mapping);
    expect_equal(list[number], expected[number]);
  }
  EXPECT_EQ(number, expected.size());
  EXPECT_EQ(list.sum_of(Cause::heap_live).bytes, (std::int64_t{1} << 62) + 8192);
  EXPECT_EQ(list.sum_of(Cause::heap_live).exclusive_bytes, 8199);
  EXPECT_EQ(list.sum_of(Cause::heap_live).count, 3U);
  EXPECT_EQ(list.sum_of(Cause::stack).count, 0U);
}

TEST(SliceList, PackedSlicesAreWhatTheyWere) {
  SliceList list(examples());
  expect_examples(list);
  list.pack();
  expect_examples(list);
  const SliceList copy = list;
  list = SliceList();
  expect_examples(copy);
}

TEST(SliceList, PacksOneAfterTheOther) {
  SliceList list;
  list.begin_packing(std::make_shared<NamePool>());
  for (const Slice& one : examples()) list.add(one);
  expect_examples(list);
  list.pack();
  expect_examples(list);
}

TEST(SliceList, OpensToBeChangedAndPacksAgain) {
  SliceList list(examples());
  list.pack();
  list.open().push_back(slice(Cause::stack, 4, "[stack]", 8, 8));
  EXPECT_EQ(list.size(), examples().size() + 1);
  list.pack();
  EXPECT_EQ(list.sum_of(Cause::stack).bytes, 8);
  list.open().pop_back();
  expect_examples(list);
}

TEST(SliceList, IsEmptyEitherWay) {
  SliceList list;
  EXPECT_TRUE(list.empty());
  EXPECT_TRUE(list.begin() == SliceList::end());
  list.pack();
  EXPECT_TRUE(list.empty());
  EXPECT_TRUE(list.begin() == SliceList::end());
}

}  // namespace
}  // namespace whyrss::slice_list_test
