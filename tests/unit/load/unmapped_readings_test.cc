// What a walk finds mapped is shared memory that no process maps no longer.
#include "load/unmapped_readings.h"

#include <gtest/gtest.h>

#include "literal_accounts.h"

namespace whyrss::unmapped_readings_test {
namespace {

constexpr std::int64_t kMiB = 1024 * 1024;
constexpr const char* kCache = "/dev/shm/cache";

UnmappedMemory reading(double time_s, const std::string& name, std::int64_t mib) {
  return {.time_s = time_s, .bytes = mib * kMiB, .count = mib > 0 ? 1 : 0, .files = {{name, mib * kMiB}}};
}

// One process fills a file until 1 s, another one maps `mapped_mib` of it at 1.1 s.
std::vector<ProcessAccount> filled_and_mapped(const std::string& name, std::int64_t mapped_mib) {
  std::vector<ProcessAccount> processes{literal::python_process(10, {"fills"}), literal::python_process(11, {"maps"})};
  processes[0].unmapped = {reading(0.9, name, 60), reading(1, name, 80)};
  processes[1].accounts = {literal::walk(0.95, {}),
                           literal::walk(1.1, {{Cause::shared_memory, mapped_mib, kEmptyStack, name}}),
                           literal::walk(1.2, {{Cause::shared_memory, mapped_mib, kEmptyStack, name}})};
  return processes;
}

TEST(UnmappedReadings, WhatAWalkFindsMappedIsLeftOutFromThenOn) {
  auto processes = filled_and_mapped(kCache, 80);
  leave_out_mapped(processes);
  const auto& readings = processes[0].unmapped;
  ASSERT_EQ(readings.size(), 3U);
  EXPECT_EQ(readings[1].bytes, 80 * kMiB);
  EXPECT_EQ(readings[2].time_s, 1.1);
  EXPECT_EQ(readings[2].bytes, 0);
  EXPECT_EQ(readings[2].count, 0);
  EXPECT_TRUE(readings[2].files.empty());
  EXPECT_TRUE(readings[0].files.front().is_mapped_later && readings[1].files.front().is_mapped_later);
}

TEST(UnmappedReadings, TheRestOfAFileThatIsMappedInPartCounts) {
  auto processes = filled_and_mapped(kCache, 30);
  leave_out_mapped(processes);
  ASSERT_EQ(processes[0].unmapped.size(), 3U);
  EXPECT_EQ(processes[0].unmapped[2].bytes, 50 * kMiB);
  EXPECT_EQ(processes[0].unmapped[2].files.front().bytes, 50 * kMiB);
}

TEST(UnmappedReadings, ALaterReadingKnowsBetter) {
  auto processes = filled_and_mapped(kCache, 80);
  processes[0].unmapped.push_back(reading(1.05, kCache, 20));
  processes[0].unmapped.push_back({.time_s = 1.3, .bytes = std::nullopt});
  leave_out_mapped(processes);
  ASSERT_EQ(processes[0].unmapped.size(), 5U);
  EXPECT_EQ(processes[0].unmapped[3].time_s, 1.1);
  EXPECT_EQ(processes[0].unmapped[3].bytes, 0);
  EXPECT_FALSE(processes[0].unmapped[4].bytes);
}

TEST(UnmappedReadings, NamesThatSeveralHaveSayNothing) {
  for (const char* name : {"/memfd:x (deleted)", "/SYSV00000000"}) {
    auto processes = filled_and_mapped(name, 80);
    leave_out_mapped(processes);
    EXPECT_EQ(processes[0].unmapped.size(), 2U);
    EXPECT_FALSE(processes[0].unmapped[1].files.front().is_mapped_later);
  }
}

}  // namespace
}  // namespace whyrss::unmapped_readings_test
