// smaps, smaps_rollup, stat and status: real text to figures.
#include "procfs/smaps.h"

#include <gtest/gtest.h>

#include "procfs/process_stat.h"
#include "support/file.h"

namespace whyrss::smaps_test {
namespace {

constexpr std::string_view kTwoMappings =
    "55d0c0000000-55d0c0100000 rw-p 00000000 00:00 0                          [heap]\n"
    "Size:               1024 kB\nKernelPageSize:        4 kB\nMMUPageSize:           4 kB\n"
    "Rss:                 900 kB\nPss:                 700 kB\nPss_Dirty:           600 kB\n"
    "Shared_Clean:         16 kB\nShared_Dirty:        384 kB\nPrivate_Clean:       100 kB\nPrivate_Dirty:       400 "
    "kB\n"
    "Referenced:          900 kB\nAnonymous:           884 kB\nLazyFree:            100 kB\nAnonHugePages:         0 "
    "kB\n"
    "Shared_Hugetlb:        0 kB\nPrivate_Hugetlb:       0 kB\nSwap:                 12 kB\nSwapPss:               0 "
    "kB\n"
    "VmFlags: rd wr mr mw me ac \n"
    "7f0000000000-7f0000400000 rw-s 00000000 00:0f 9                          /anon_hugepage (deleted)\n"
    "Size:               4096 kB\nKernelPageSize:     2048 kB\nRss:                   0 kB\nPss:                   0 "
    "kB\n"
    "Shared_Hugetlb:     2048 kB\nPrivate_Hugetlb:    2048 kB\nVmFlags: rd wr sh ht \n";

TEST(Smaps, ReadsTheFieldsOfEachMapping) {
  const auto entries = parse_smaps(kTwoMappings);
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].range.path, "[heap]");
  EXPECT_EQ(entries[0].rss_bytes, 900 * 1024);
  EXPECT_EQ(entries[0].pss_bytes, 700 * 1024);
  EXPECT_EQ(entries[0].uss_bytes(), 500 * 1024);
  EXPECT_EQ(entries[0].shared_dirty_bytes, 384 * 1024);
  EXPECT_EQ(entries[0].lazy_free_bytes, 100 * 1024);
  EXPECT_EQ(entries[0].swap_bytes, 12 * 1024);
  EXPECT_EQ(entries[0].vm_flags, "rd wr mr mw me ac ");
  EXPECT_EQ(entries[1].page_bytes, 2048 * 1024);
  EXPECT_EQ(entries[1].hugetlb_bytes, 4096 * 1024);
  EXPECT_EQ(entries[1].rss_bytes, 0);
}

TEST(Smaps, SurvivesHostileText) {
  EXPECT_TRUE(parse_smaps("").empty());
  EXPECT_TRUE(parse_smaps("Rss: 5 kB\n").empty());
  const auto entries =
      parse_smaps("1000-2000 rw-p 0 00:00 0\nRss: 99999999999999999999 kB\nPss: -4 kB\nSwap:\nUnknown: 1 kB");
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_EQ(entries[0].rss_bytes, 0);
  EXPECT_EQ(entries[0].pss_bytes, 0);
  for (std::size_t cut = 0; cut < kTwoMappings.size(); ++cut)
    EXPECT_LE(parse_smaps(kTwoMappings.substr(0, cut)).size(), 2U);
}

TEST(Smaps, ReadsARollup) {
  const auto sums = parse_smaps_rollup("1000-7fff0000 ---p 00000000 00:00 0    [rollup]\nRss: 8 kB\nPss: 6 kB\n");
  ASSERT_TRUE(sums.has_value());
  EXPECT_EQ(sums->rss_bytes, 8192);
  EXPECT_EQ(sums->pss_bytes, 6144);
  EXPECT_FALSE(parse_smaps_rollup("").has_value());
}

TEST(Smaps, AddsUpToStatusOfThisProcess) {
  const auto text = read_file("/proc/self/smaps");
  const auto sums = parse_smaps_rollup(*read_file("/proc/self/smaps_rollup"));
  ASSERT_TRUE(text.ok() && sums.has_value());
  std::int64_t rss_bytes = 0;
  for (const auto& entry : parse_smaps(*text)) rss_bytes += entry.rss_bytes;
  EXPECT_NEAR(static_cast<double>(rss_bytes), static_cast<double>(sums->rss_bytes), 1024 * 1024);
  EXPECT_GT(rss_bytes, 0);
}

TEST(ProcessStat, ReadsNamesThatLookLikeFields) {
  const auto stat = parse_process_stat(
      "4711 (a) R 1 (b)) S 42 4711 4711 0 -1 4194560 1234 0 56 0 7 8 0 0 20 0 3 0 987654 1000 250 18446744073709551615 "
      "111 222 333 0 0\n");
  ASSERT_TRUE(stat.has_value());
  EXPECT_EQ(stat->comm, "a) R 1 (b)");
  EXPECT_EQ(stat->state, 'S');
  EXPECT_EQ(stat->parent_pid, 42);
  EXPECT_EQ(stat->minor_faults, 1234U);
  EXPECT_EQ(stat->major_faults, 56U);
  EXPECT_EQ(stat->thread_count, 3);
  EXPECT_EQ(stat->start_ticks, 987654U);
  EXPECT_EQ(stat->start_code, 111U);
  EXPECT_EQ(stat->start_stack, 333U);
}

TEST(ProcessStat, RefusesCutText) {
  for (const char* text : {"", "1", "1 (a", "1 (a)", "1 (a) S", "1 (a) S 2 3 4", ")1 (a"})
    EXPECT_FALSE(parse_process_stat(text).has_value()) << text;
  EXPECT_FALSE(parse_statm("12 x 3").has_value());
  EXPECT_EQ(parse_statm("12 5 3 1 0 4 0\n")->resident, 5U);
}

TEST(Status, FindsValuesByTheirWholeName) {
  constexpr std::string_view kText = "Name:\tpython\nVmHWM:\t  2048 kB\nVmRSS:\t  1024 kB\nThreads:\t4\n";
  EXPECT_EQ(status_value(kText, "VmHWM"), 2048);
  EXPECT_EQ(status_value(kText, "Threads"), 4);
  EXPECT_FALSE(status_value(kText, "Vm").has_value());
  EXPECT_FALSE(status_value(kText, "Name").has_value());
}

}  // namespace
}  // namespace whyrss::smaps_test
