#include "collect/loop/write_faults.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "recording/manifest.h"

namespace whyrss::write_faults_test {
namespace {

using trace::FrameKind;

const Error kFull{"cannot append", ENOSPC}, kBroken{"cannot append", EIO};

TEST(WriteFaults, CountsWhatIsMissingPerError) {
  WriteFaults faults("/rec");
  EXPECT_FALSE(faults.any());
  EXPECT_FALSE(faults.take_news());
  faults.lost_frame("/rec/a/pages.zst", FrameKind::walk, kFull);
  EXPECT_TRUE(faults.take_news());
  faults.lost_frame("/rec/a/pages.zst", FrameKind::smaps, kFull);
  faults.lost_events("/rec/a/events.zst", 7, kFull);
  faults.lost_events("/rec/b/events.zst", 5, kFull);
  EXPECT_FALSE(faults.take_news());
  faults.lost_events("/rec/b/events.zst", 1, kBroken);
  EXPECT_TRUE(faults.take_news());
  const auto list = faults.list();
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0].file, "a/pages.zst");
  EXPECT_EQ(list[0].error, "No space left on device");
  EXPECT_EQ(list[0].other_files, 2);
  EXPECT_EQ(list[0].walks, 1);
  EXPECT_EQ(list[0].frames, 1);
  EXPECT_EQ(list[0].events, 12);
  EXPECT_EQ(list[1].events, 1);
}

TEST(WriteFaults, LastToTheEndUnlessSomethingIsWrittenAgain) {
  WriteFaults faults("/rec");
  faults.wrote();
  faults.lost_state("/rec/manifest.json", kFull);
  EXPECT_EQ(faults.list()[0].until_ns, 0);
  faults.wrote();
  const std::int64_t until_ns = faults.list()[0].until_ns;
  EXPECT_GE(until_ns, faults.list()[0].from_ns);
  EXPECT_GT(until_ns, 0);
  faults.lost_state("/rec/manifest.json", kFull);
  EXPECT_EQ(faults.list()[0].until_ns, 0);
}

TEST(WriteFaults, AreDescribedInOneLine) {
  WriteFault fault{.file = "n.1.2/events.zst", .error = "No space left on device", .from_ns = 3'500'000'000};
  EXPECT_EQ(describe(fault, 2'000'000'000),
            "n.1.2/events.zst could not be written from 1.500 s on: No space left on device");
  fault.until_ns = 4'000'000'000;
  fault.other_files = 1;
  fault.events = 1;
  fault.walks = 2;
  fault.frames = 3;
  EXPECT_EQ(
      describe(fault, 2'000'000'000),
      "n.1.2/events.zst and 1 other file could not be written from 1.500 s to 2.000 s: No space left on device (1 "
      "event, 2 snapshots and 3 other frames missing)");
  fault.from_ns = INT64_MIN;  // as somebody may have written it
  fault.until_ns = INT64_MAX;
  EXPECT_FALSE(describe(fault, INT64_MAX).empty());
}

TEST(WriteFaults, AreKeptInTheManifest) {
  Manifest manifest;
  manifest.write_faults = {
      {.file = "a", .error = "b", .from_ns = 1, .until_ns = 2, .other_files = 3, .events = 4, .walks = 5, .frames = 6}};
  const auto read = parse_manifest(render_manifest(manifest), "manifest");
  ASSERT_TRUE(read.ok());
  ASSERT_EQ(read->write_faults.size(), 1U);
  const WriteFault& fault = read->write_faults.front();
  EXPECT_EQ(describe(fault, 0), describe(manifest.write_faults.front(), 0));
  EXPECT_EQ(fault.other_files, 3);
  EXPECT_EQ(fault.frames, 6);
}

}  // namespace
}  // namespace whyrss::write_faults_test
