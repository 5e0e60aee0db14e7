// Records of sampled page faults, and of why there are none, to the figures of a process.
#include "decode/touch_records.h"

#include <gtest/gtest.h>

#include "recording_builder.h"

namespace whyrss::touch_records_test {
namespace {

using testing_support::append;
using testing_support::ByteVector;
using trace::RecordKind;

void count(RecordKind kind, const ByteVector& bytes, TouchFigures& touch) {
  EventRecord record{};
  record.kind = kind;
  record.bytes = bytes;
  count_touch(record, touch);
}

ByteVector sample(std::uint32_t weight_faults, std::uint32_t missed_faults) {
  return testing_support::touch(1, 0x7f0000001018, weight_faults, missed_faults);
}

ByteVector state(trace::TouchState now, std::string_view why) {
  ByteVector text;
  append(text, why);
  trace::TextRecord fixed{};
  fixed.argument = static_cast<std::uint32_t>(now);
  fixed.text_bytes = static_cast<std::uint32_t>(why.size());
  return testing_support::record(RecordKind::touch_state, 1, fixed, text);
}

TEST(TouchRecords, SamplesStandForTheirFaults) {
  TouchFigures touch;
  count(RecordKind::touch_state, state(trace::TouchState::armed, ""), touch);
  count(RecordKind::touch, sample(7, 0), touch);
  count(RecordKind::touch, sample(61, 14), touch);
  EXPECT_TRUE(touch.armed);
  EXPECT_EQ(touch.off_reason, "");
  EXPECT_EQ(touch.samples, 2U);
  EXPECT_EQ(touch.faults, 68U);
  EXPECT_EQ(touch.missed, 14U);
}

TEST(TouchRecords, TheCollectorIsNoPartOfTheWeight) {
  TouchFigures touch;
  count(RecordKind::touch, sample(61 | trace::TouchRecord::kCollecting, 0), touch);
  EXPECT_EQ(touch.faults, 61U);
}

TEST(TouchRecords, TheNewestStateSaysWhyItIsOff) {
  TouchFigures touch;
  count(RecordKind::touch_state, state(trace::TouchState::off, "not permitted"), touch);
  EXPECT_FALSE(touch.armed);
  EXPECT_EQ(touch.off_reason, "not permitted");
  count(RecordKind::touch_state, state(trace::TouchState::armed, ""), touch);
  EXPECT_EQ(touch.off_reason, "");
  count(RecordKind::touch_state, state(trace::TouchState::off, "traced"), touch);
  EXPECT_TRUE(touch.armed);
  EXPECT_EQ(touch.off_reason, "traced");
}

TEST(TouchRecords, WhatIsCutOffCountsNothing) {
  TouchFigures touch;
  ByteVector cut = sample(61, 1);
  cut.resize(cut.size() - 8);
  count(RecordKind::touch, cut, touch);
  ByteVector text = state(trace::TouchState::off, "not permitted");
  text.resize(sizeof(trace::TextRecord) + 4);
  count(RecordKind::touch_state, text, touch);
  EXPECT_EQ(touch.samples + touch.faults + touch.missed, 0U);
  EXPECT_EQ(touch.off_reason, "");
}

}  // namespace
}  // namespace whyrss::touch_records_test
