// Records that are kept packed, of several parts.
#include "decode/record_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace whyrss::record_list_test {
namespace {

using trace::RecordKind;

constexpr std::uint32_t kCount = 1500;

class RecordListTest : public testing::Test {
 protected:
  RecordListTest() {
    for (std::uint32_t i = 0; i < kCount; ++i) {
      trace::RangeRecord record{};
      record.header = {.size_bytes = sizeof record,
                       .kind = i == 700 ? RecordKind::attach : RecordKind::unmap,
                       .reserved = 0,
                       .time_ns = time_of(i)};
      record.address = i * 4096ULL;
      kept_.push_back(record);
    }
    for (std::uint32_t i = 0; i < kCount; ++i)
      records_.push_back(
          {kept_[i].header.time_ns, kept_[i].header.kind, i, 1ULL << 40 | i, std::as_bytes(std::span(&kept_[i], 1))});
  }
  static std::uint64_t time_of(std::uint32_t number) { return 1000 + number / 2 * 10; }  // two at a time
  static void expect(const EventRecord& record, std::uint32_t number) {
    EXPECT_EQ(record.time_ns, time_of(number));
    EXPECT_EQ(record.offset, number);
    EXPECT_EQ(record.lease, 1ULL << 40 | number);
    trace::RangeRecord range{};
    EXPECT_TRUE(read_record(record, range));
    EXPECT_EQ(range.address, number * 4096ULL);
  }

  std::vector<trace::RangeRecord> kept_;
  std::vector<EventRecord> records_;
};

TEST_F(RecordListTest, HasAllInOrder) {
  const RecordList list(records_);
  kept_.clear();  // their bytes are the list's own
  ASSERT_EQ(list.size(), kCount);
  std::uint32_t number = 0;
  for (const EventRecord& record : list) expect(record, number++);
  EXPECT_EQ(number, kCount);
  EXPECT_EQ(list[700].kind, RecordKind::attach);
}

TEST_F(RecordListTest, KeepsWhatIsHeldWhileItLooksElsewhere) {
  const RecordList list(records_);
  const auto held = list.at(3);
  for (const std::uint32_t number : {1499U, 600U, 1100U, 2U, 1499U}) expect(list[number], number);
  expect(*held, 3);
}

TEST_F(RecordListTest, FindsATime) {
  const RecordList list(records_);
  for (const std::uint32_t number : {0U, 2U, 510U, 512U, 514U, 1022U, 1024U, 1498U})
    EXPECT_EQ(list.first_at(time_of(number)), number);
  EXPECT_EQ(list.first_at(0), 0U);
  EXPECT_EQ(list.first_at(time_of(512) - 1), 512U);
  EXPECT_EQ(list.first_at(time_of(kCount)), kCount);
}

TEST_F(RecordListTest, CountsKinds) {
  const RecordList list(records_);
  EXPECT_EQ(list.count_of(RecordKind::attach), 1U);
  EXPECT_EQ(list.count_of(RecordKind::unmap), kCount - 1);
  EXPECT_FALSE(list.has(RecordKind::fork));
}

TEST(RecordList, MayBeEmpty) {
  const RecordList list;
  EXPECT_EQ(list.size(), 0U);
  EXPECT_TRUE(list.begin() == RecordList::end());
  EXPECT_EQ(list.first_at(5), 0U);
}

}  // namespace
}  // namespace whyrss::record_list_test
