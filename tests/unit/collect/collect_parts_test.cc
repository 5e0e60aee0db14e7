// The collector's smaller parts: directories, the walk policy and its budget, what a program file is.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>
#include <vector>

#include "collect/cgroup/cgroup.h"
#include "collect/loop/process_names.h"
#include "collect/loop/walk_policy.h"
#include "collect/read/process_presence.h"
#include "collect/read/target_kind.h"
#include "collect/start/recording_directory.h"
#include "file_tree.h"
#include "recording/manifest.h"
#include "shim/trace/sanitizer_runtime.h"

namespace whyrss::collect_parts_test {
namespace {

namespace fs = std::filesystem;

class Directory : public testing::Test {
 protected:
  static void put(const std::string& path, const std::string& text, int mode = 0644) {
    std::ofstream(path) << text;
    chmod(path.c_str(), static_cast<mode_t>(mode));
  }
  FileTree tree_;
  const std::string& root_ = tree_.path();
};

TEST_F(Directory, IsMadeWithItsParentsAndLocked) {
  const auto first = make_recording_directory(root_ + "/a/b/rec", WhenTaken::refuse);
  ASSERT_TRUE(first.ok()) << first.error();
  EXPECT_TRUE(fs::is_directory(root_ + "/a/b/rec"));
  EXPECT_FALSE(make_recording_directory(root_ + "/a/b/rec", WhenTaken::refuse).ok());
}

TEST_F(Directory, NeverReplacesWhatIsNoRecordingOrStillWritten) {
  fs::create_directory(root_ + "/mine");
  put(root_ + "/mine/thesis.txt", "years of work");
  EXPECT_FALSE(make_recording_directory(root_ + "/mine", WhenTaken::replace).ok());
  EXPECT_TRUE(fs::exists(root_ + "/mine/thesis.txt"));

  auto running = make_recording_directory(root_ + "/rec", WhenTaken::refuse);
  ASSERT_TRUE(running.ok());
  put(root_ + "/rec/manifest.json", "{}");
  EXPECT_FALSE(make_recording_directory(root_ + "/rec", WhenTaken::replace).ok());
  EXPECT_FALSE(make_recording_directory(root_ + "/rec", WhenTaken::refuse).ok());
  running->lock.reset();
  EXPECT_TRUE(make_recording_directory(root_ + "/rec", WhenTaken::replace).ok());
  EXPECT_FALSE(fs::exists(root_ + "/rec/manifest.json"));
}

TEST_F(Directory, CountsUpForJobsWithoutACommandLine) {
  const auto first = make_recording_directory(root_ + "/rec", WhenTaken::choose_next);
  const auto second = make_recording_directory(root_ + "/rec", WhenTaken::choose_next);
  const auto third = make_recording_directory(root_ + "/rec", WhenTaken::choose_next);
  ASSERT_TRUE(first.ok() && second.ok() && third.ok());
  EXPECT_EQ(first->path, root_ + "/rec");
  EXPECT_EQ(second->path, root_ + "/rec.1");
  EXPECT_EQ(third->path, root_ + "/rec.2");
}

TEST_F(Directory, IsNeverGivenToTwoWhoComeTogether) {
  constexpr int kRounds = 50, kAtOnce = 4;
  for (int round = 0; round < kRounds; ++round) {
    const std::string wanted = fmt::format("{}/rec{}", root_, round);
    std::array<std::string, kAtOnce> got;
    std::vector<std::thread> others;
    for (std::string& path : got)
      others.emplace_back([&path, &wanted] {
        const auto made = make_recording_directory(wanted, WhenTaken::choose_next);
        if (!made.ok()) return;
        path = made->path;
        put(path + "/manifest.json", "{}");
      });  // and gone again, with its lock
    for (std::thread& other : others) other.join();
    EXPECT_EQ(std::set<std::string>(got.begin(), got.end()).size(), kAtOnce) << wanted;
    EXPECT_FALSE(std::ranges::find(got, wanted) == got.end());
  }
}

TEST(ProcessNames, TakeNobodyForEndedWhomTheyCannotRead) {
  const pid_t pid = getpid();
  const ProcessKey own{.pid = static_cast<std::uint32_t>(pid), .start_ticks = *start_ticks_of(pid)};
  const ProcessKey other{.pid = own.pid, .start_ticks = own.start_ticks + 1};
  ProcessNames names;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const Presence presence = presence_of(pid, own.start_ticks);
  const auto unread = names.pid_of(own, 1, true);
  const auto unread_other = names.pid_of(other, 1, true);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(presence, Presence::unknown);
  EXPECT_EQ(unread, std::nullopt);
  EXPECT_EQ(unread_other, std::nullopt);
  EXPECT_EQ(names.pid_of(own, 2, true), pid);
  EXPECT_EQ(names.pid_of(other, 2, true), 0);
}

TEST_F(Directory, SaysWhatIsInTheWay) {
  put(root_ + "/file", "x");
  const auto result = make_recording_directory(root_ + "/file", WhenTaken::refuse);
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().find(root_ + "/file"), std::string::npos);
  EXPECT_FALSE(make_recording_directory(root_ + "/file/below", WhenTaken::refuse).ok());
}

TEST(ViewPolicy, WalksWhenTheProcessHasGrownAndTheCostAllows) {
  using trace::WalkTrigger;
  constexpr std::int64_t kSecond = 1'000'000'000;
  ViewPolicy policy;
  policy.probed(100 * kSecond, 20'000'000, 10'000);
  EXPECT_FALSE(policy.is_due(WalkTrigger::growth, 105 * kSecond, 10'000 + ViewPolicy::kGrownPages - 1));
  EXPECT_TRUE(policy.is_due(WalkTrigger::growth, 105 * kSecond, 10'000 + ViewPolicy::kGrownPages));
  EXPECT_FALSE(policy.is_due(WalkTrigger::growth, 101 * kSecond, 20'000));  // that was 1/50 of the time
  EXPECT_TRUE(policy.is_due(WalkTrigger::interval, 110 * kSecond, 10'000));
  EXPECT_TRUE(policy.is_due(WalkTrigger::request, 100 * kSecond, 10'000));
  EXPECT_TRUE(policy.is_due(WalkTrigger::exit, 100 * kSecond, 10'000));
  // Where it could not afford a walk, it has fallen behind: the process is to ask for one as it ends.
  EXPECT_TRUE(policy.is_behind(20'000));
  EXPECT_FALSE(policy.is_behind(10'000 + ViewPolicy::kGrownPages - 1));
}

TEST(ViewPolicy, WalksOnRequestAsLongAsItsBudgetLasts) {
  using trace::WalkTrigger;
  constexpr std::int64_t kMs = 1'000'000;
  ViewPolicy policy;
  std::int64_t now_ns = 100'000 * kMs, spent_ns = 0;
  // Given a program that asks 40 times per second, for looks that take 10 ms each
  for (int request = 0; request < 400; ++request, now_ns += 25 * kMs) {
    if (!policy.is_due(WalkTrigger::request, now_ns, 10'000)) continue;
    spent_ns += 10 * kMs;
    policy.probed(now_ns, 10 * kMs, 10'000);
  }
  // Then a hundredth of its 10 s goes into them, beside what was in the token bucket
  EXPECT_LE(spent_ns, ViewPolicy::kBucketNs + 110 * kMs);
  EXPECT_GE(spent_ns, ViewPolicy::kBucketNs + 90 * kMs);
  // What moved much is walked all the same, if a tenth of the time at most goes into it; and the end always
  EXPECT_FALSE(policy.is_due(WalkTrigger::request, now_ns, 10'000 + ViewPolicy::kGrownPages - 1));
  policy.probed(now_ns, 10 * kMs, 10'000);
  EXPECT_FALSE(policy.is_due(WalkTrigger::request, now_ns + 99 * kMs, 10'000 + ViewPolicy::kGrownPages));
  EXPECT_TRUE(policy.is_due(WalkTrigger::request, now_ns + 100 * kMs, 10'000 + ViewPolicy::kGrownPages));
  EXPECT_TRUE(policy.is_due(WalkTrigger::request, now_ns + 100 * kMs, 10'000 - ViewPolicy::kGrownPages));
  EXPECT_TRUE(policy.is_due(WalkTrigger::exit, now_ns, 10'000));
}

TEST(Tokens, AreFilledIn) {
  setenv("SLURM_JOB_ID", "77", 1);
  setenv("SLURM_PROCID", "3", 1);
  EXPECT_EQ(expand_tokens("a%p-%j.%r%%%x%", 42), "a42-77.3%%x%");
  unsetenv("SLURM_JOB_ID");
  unsetenv("SLURM_PROCID");
  EXPECT_EQ(expand_tokens("%j", getpid()), std::to_string(getsid(0)));
}

TEST_F(Directory, TellsProgramsThatCannotBePreloaded) {
  EXPECT_EQ(inspect_target("/bin/sh").kind, TargetKind::traceable);
  EXPECT_EQ(inspect_target("sh").kind, TargetKind::traceable);
  EXPECT_EQ(inspect_target("no-such-program-here").kind, TargetKind::not_found);
  EXPECT_EQ(inspect_target("").kind, TargetKind::not_found);
  put(root_ + "/plain", "x");
  EXPECT_EQ(inspect_target(root_ + "/plain").kind, TargetKind::not_executable);
  EXPECT_EQ(inspect_target(root_).kind, TargetKind::not_executable);
  put(root_ + "/script", "#! /bin/sh -e\necho", 0755);
  EXPECT_EQ(inspect_target(root_ + "/script").kind, TargetKind::traceable);
  EXPECT_EQ(inspect_target(root_ + "/script").path, "/bin/sh");
  put(root_ + "/loop", "#!" + root_ + "/loop\n", 0755);
  EXPECT_EQ(inspect_target(root_ + "/loop").kind, TargetKind::traceable);  // the kernel says no by itself
  put(root_ + "/cut", "\177ELF", 0755);
  EXPECT_EQ(inspect_target(root_ + "/cut").kind, TargetKind::other_class);
}

TEST(SanitizerRuntime, IsKnownByItsName) {
  for (const char* name : {"libasan.so.8", "libtsan.so.2", "liblsan.so.0", "libhwasan.so.0",
                           "/usr/lib/clang/14/lib/linux/libclang_rt.asan-x86_64.so", "libclang_rt.tsan-x86_64.so"})
    EXPECT_TRUE(trace::is_sanitizer_runtime(name)) << name;
  for (const char* name : {"libubsan.so.1", "libc.so.6", "/opt/libasan.d/libfoo.so", "libasanity.so", ""})
    EXPECT_FALSE(trace::is_sanitizer_runtime(name)) << name;
}

TEST_F(Directory, ReadsDamagedProgramsWithoutHarm) {
  std::string program;
  {
    std::ifstream file("/bin/sh", std::ios::binary);
    program.assign(std::istreambuf_iterator<char>(file), {});
  }
  ASSERT_GT(program.size(), 1024U);
  for (std::size_t at = 0; at < 1024; at += 3) {
    std::string damaged = program;
    damaged[at] = static_cast<char>(damaged[at] ^ 0xff);
    put(root_ + "/damaged", damaged, 0755);
    EXPECT_NE(inspect_target(root_ + "/damaged").kind, TargetKind::sanitizer) << at;
  }
}

TEST(WalkPolicy, WalksWhenRssOrFaultsMoveByAPercentAndAMegabyte) {
  WalkPolicy policy;
  EXPECT_EQ(policy.observe({.time_ns = 0, .rss_pages = 1000, .faults = 0}), trace::WalkTrigger::start);
  policy.walked({.time_ns = 0, .rss_pages = 1000, .faults = 0}, 1);
  EXPECT_EQ(policy.observe({.time_ns = 100, .rss_pages = 1256, .faults = 0}), std::nullopt);
  EXPECT_EQ(policy.observe({.time_ns = 200, .rss_pages = 1257, .faults = 0}), trace::WalkTrigger::growth);
  EXPECT_EQ(policy.observe({.time_ns = 300, .rss_pages = 700, .faults = 0}), trace::WalkTrigger::growth);
  EXPECT_EQ(policy.observe({.time_ns = 400, .rss_pages = 1000, .faults = 300}), trace::WalkTrigger::growth);
  policy.walked({.time_ns = 500, .rss_pages = 1'000'000, .faults = 300}, 1);
  EXPECT_EQ(policy.observe({.time_ns = 600, .rss_pages = 1'010'000, .faults = 300}), std::nullopt);
  EXPECT_EQ(policy.observe({.time_ns = 700, .rss_pages = 1'010'001, .faults = 300}), trace::WalkTrigger::growth);
}

TEST(WalkPolicy, WalksWhenTheHeapIsFreedAndKeptByTheAllocator) {
  WalkPolicy policy;
  policy.walked({.time_ns = 0, .rss_pages = 1000, .faults = 0, .live_bytes = 3 << 20}, 1);
  EXPECT_EQ(policy.observe({.time_ns = 100, .rss_pages = 1000, .faults = 0, .live_bytes = 2 << 20}), std::nullopt);
  EXPECT_EQ(policy.observe({.time_ns = 200, .rss_pages = 1000, .faults = 0, .live_bytes = 1 << 20}),
            trace::WalkTrigger::growth);
  // A child that frees what it inherited counts below 0.
  EXPECT_EQ(policy.observe({.time_ns = 300, .rss_pages = 1000, .faults = 0, .live_bytes = -(1 << 20)}),
            trace::WalkTrigger::growth);
}

TEST(WalkPolicy, LeavesTimeBetweenCostlyWalks) {
  WalkPolicy policy;
  policy.walked({.time_ns = 0, .rss_pages = 1000, .faults = 0}, 20'000'000);
  EXPECT_EQ(policy.observe({.time_ns = 600'000'000, .rss_pages = 2000, .faults = 0}), std::nullopt);
  EXPECT_EQ(policy.observe({.time_ns = 670'000'000, .rss_pages = 2000, .faults = 0}), trace::WalkTrigger::growth);
}

TEST(WalkPolicy, LeavesAsMuchTimeAsItsShareAsks) {
  WalkPolicy policy(0.1);
  policy.walked({.time_ns = 0, .rss_pages = 1000, .faults = 0}, 20'000'000);
  EXPECT_EQ(policy.observe({.time_ns = 199'000'000, .rss_pages = 2000, .faults = 0}), std::nullopt);
  EXPECT_EQ(policy.observe({.time_ns = 200'000'000, .rss_pages = 2000, .faults = 0}), trace::WalkTrigger::growth);
}

TEST(WalkPolicy, WhatHasComeToRestDoesNotWaitForTheNextTurn) {
  WalkPolicy policy;
  policy.walked({.time_ns = 0, .rss_pages = 1000, .faults = 0}, 100'000'000);
  EXPECT_EQ(policy.observe({.time_ns = 100'000'000, .rss_pages = 9000, .faults = 8000}), std::nullopt);
  EXPECT_EQ(policy.observe({.time_ns = 200'000'000, .rss_pages = 9000, .faults = 8000}), std::nullopt);
  EXPECT_EQ(policy.observe({.time_ns = 300'000'000, .rss_pages = 9000, .faults = 8000}), trace::WalkTrigger::quiet);
}

TEST(WalkPolicy, WhatLeftSomethingOutIsMadeUpForAtRest) {
  constexpr std::int64_t kMs = 1'000'000;
  const PollPoint still{.time_ns = 300 * kMs, .rss_pages = 1000, .faults = 0};
  WalkPolicy policy;
  policy.walked({.time_ns = 0, .rss_pages = 1000, .faults = 0}, 100);
  EXPECT_EQ(policy.observe(still), std::nullopt);
  policy.walked({.time_ns = 0, .rss_pages = 1000, .faults = 0}, 100, true);
  EXPECT_EQ(policy.observe(still), trace::WalkTrigger::quiet);
  policy.walked(still, 100);
  EXPECT_EQ(policy.observe({.time_ns = 900 * kMs, .rss_pages = 1000, .faults = 0}), std::nullopt);
}

TEST(LimitPolicy, TellsHowMuchWillBeUsedWithinASecond) {
  LimitPolicy policy;
  constexpr std::int64_t kMs = 1'000'000, kMiB = 1 << 20;
  std::int64_t now_ns = 1000 * kMs, left_bytes = 1000 * kMiB, soon_bytes = 0;
  const auto go_on = [&](int polls, std::int64_t used_bytes) {
    for (; polls > 0; --polls, now_ns += 20 * kMs, left_bytes -= used_bytes)
      soon_bytes = policy.observe(now_ns, left_bytes);
  };
  EXPECT_EQ(policy.observe(now_ns, left_bytes), 0) << "nothing is known yet";
  go_on(20, 4 * kMiB);
  EXPECT_EQ(soon_bytes, 200 * kMiB);
  go_on(20, 0);
  EXPECT_EQ(soon_bytes, 0) << "it rests";
  go_on(20, -kMiB);
  EXPECT_EQ(soon_bytes, 0) << "it gives back";
}

TEST(WalkPolicy, StartsAgainWithAnotherProgram) {
  WalkPolicy policy;
  policy.walked({.time_ns = 0, .rss_pages = 1000, .faults = 0}, 20'000'000);
  policy.forget();
  EXPECT_EQ(policy.observe({.time_ns = 1, .rss_pages = 1000, .faults = 0}), trace::WalkTrigger::start);
}

TEST(WalkPolicy, WalksMoreRarelyTheLongerItHasRunWhereItsSizeIsKnown) {
  constexpr std::int64_t kSecond = 1'000'000'000, kHour = 3600 * kSecond;
  WalkPolicy policy;
  policy.walked({.time_ns = 0, .rss_pages = 8000}, 100);
  policy.walked({.time_ns = kHour, .rss_pages = 4000, .faults = 100'000}, 100);
  const auto after = [&](std::int64_t seconds, std::uint64_t pages, std::uint64_t faults) {
    return policy.observe({.time_ns = kHour + seconds * kSecond, .rss_pages = pages, .faults = faults});
  };
  EXPECT_EQ(after(9, 6000, 100'000), std::nullopt) << "it had more at a walk";
  EXPECT_TRUE(after(10, 6000, 100'000)) << "1.118 of a 400th of 59 minutes";
  EXPECT_EQ(after(9, 4000, 200'000), std::nullopt) << "what comes and goes at one size may wait longer";
  EXPECT_TRUE(after(10, 4000, 200'000));
  EXPECT_EQ(after(1, 8100, 100'000), trace::WalkTrigger::growth) << "so much was never there";
  policy = WalkPolicy(10 * WalkBudget::kShare);
  policy.walked({.time_ns = 0, .rss_pages = 8000}, 100);
  policy.walked({.time_ns = kHour, .rss_pages = 4000, .faults = 100'000}, 100);
  EXPECT_EQ(after(1, 6000, 100'000), trace::WalkTrigger::growth) << "--overhead asks for more";
  policy.forget();
  policy.walked({.time_ns = kHour, .rss_pages = 8000}, 100);
  EXPECT_EQ(after(1, 4000, 100'000), trace::WalkTrigger::growth) << "another program has no past";
}

TEST(WalkPolicy, LeavesAPartOfItsAgeBetweenWalksOfSizesThatItHadBefore) {
  constexpr std::int64_t kMs = 1'000'000;
  const auto after = [](std::int64_t age_ms, std::int64_t ms, std::uint64_t pages, double share) {
    WalkPolicy policy(share);
    policy.walked({.time_ns = 0, .rss_pages = 8000}, 100);
    policy.walked({.time_ns = age_ms * kMs, .rss_pages = 4000}, 100);
    return policy.observe({.time_ns = (age_ms + ms) * kMs, .rss_pages = pages, .faults = 100});
  };
  const double share = WalkBudget::kShare;
  EXPECT_EQ(after(1000, 59, 6000, share), std::nullopt);
  EXPECT_EQ(after(1000, 60, 6000, share), trace::WalkTrigger::growth) << "1.118 of a 20th";
  EXPECT_EQ(after(20'000, 279, 6000, share), std::nullopt);
  EXPECT_EQ(after(20'000, 280, 6000, share), trace::WalkTrigger::growth) << "of 250 ms";
  EXPECT_EQ(after(20'000, 20, 8100, share), trace::WalkTrigger::growth) << "so much was never there";
  EXPECT_EQ(after(20'000, 28, 6000, 10 * share), trace::WalkTrigger::growth) << "--overhead asks for more";
}

// Each wave is larger than all before, and so walked at its top.
TEST(WalkPolicy, WhatWavesFallBackToHasItsTurn) {
  constexpr std::int64_t kMs = 1'000'000;
  WalkPolicy policy;
  policy.walked({.time_ns = 0, .rss_pages = 2000}, 100);
  int tops = 0, bottoms = 0;
  for (std::int64_t wave = 0; wave < 100; ++wave)
    for (const bool is_top : {true, false}) {
      const PollPoint point{.time_ns = (200 * wave + (is_top ? 100 : 200)) * kMs,
                            .rss_pages = static_cast<std::uint64_t>(is_top ? 10'000 + 200 * wave : 3000 + 200 * wave)};
      if (!policy.observe(point)) continue;
      policy.walked(point, 100);
      ++(is_top ? tops : bottoms);
    }
  EXPECT_GT(tops, 60);
  EXPECT_GT(bottoms, 60);
}

TEST(WalkPolicy, WalksAfterMadvFreeThoughNothingMoves) {
  constexpr std::int64_t kMs = 1'000'000;
  const PollPoint still{.time_ns = 1020 * kMs, .rss_pages = 1000}, later{.time_ns = 1100 * kMs, .rss_pages = 1000};
  WalkPolicy policy;
  policy.walked({.time_ns = 0, .rss_pages = 1000}, 100);
  policy.walked({.time_ns = 1000 * kMs, .rss_pages = 1000}, 100);
  EXPECT_EQ(policy.observe(later), std::nullopt);
  policy.note_advice();
  EXPECT_EQ(policy.observe(still), std::nullopt) << "no more often than it may";
  EXPECT_EQ(policy.observe(later), trace::WalkTrigger::advise);
  policy.walked(later, 100);
  EXPECT_EQ(policy.observe({.time_ns = 1300 * kMs, .rss_pages = 1000}), std::nullopt) << "once";
}

TEST(WalkPolicy, WalksOnceAfterASmallChangeWentQuietAndAtIntervals) {
  WalkPolicy policy;
  policy.walked({.time_ns = 0, .rss_pages = 1000, .faults = 0}, 100);
  constexpr std::int64_t kTick = 100'000'000;
  EXPECT_EQ(policy.observe({.time_ns = kTick, .rss_pages = 1020, .faults = 20}), std::nullopt);
  EXPECT_EQ(policy.observe({.time_ns = 2 * kTick, .rss_pages = 1020, .faults = 20}), std::nullopt);
  EXPECT_EQ(policy.observe({.time_ns = 3 * kTick, .rss_pages = 1020, .faults = 20}), trace::WalkTrigger::quiet);
  policy.walked({.time_ns = 3 * kTick, .rss_pages = 1020, .faults = 20}, 100);
  for (std::int64_t tick = 4; tick < 103; ++tick)
    EXPECT_EQ(policy.observe({.time_ns = tick * kTick, .rss_pages = 1020, .faults = 20}), std::nullopt) << tick;
  EXPECT_EQ(policy.observe({.time_ns = 103 * kTick, .rss_pages = 1020, .faults = 20}), trace::WalkTrigger::interval);
}

constexpr std::int64_t kMilli = 1'000'000;

TEST(RollupPolicy, AsksOnceWhereAProcessHasMovedAndRests) {
  RollupPolicy policy;
  policy.read({.time_ns = 1000 * kMilli, .rss_pages = 1000}, 100);
  EXPECT_FALSE(policy.observe({.time_ns = 1010 * kMilli, .rss_pages = 1000}));
  EXPECT_FALSE(policy.observe({.time_ns = 1100 * kMilli, .rss_pages = 30'000, .faults = 29'000})) << "it grows";
  EXPECT_FALSE(policy.observe({.time_ns = 1200 * kMilli, .rss_pages = 50'000, .faults = 49'000})) << "it grows";
  EXPECT_FALSE(policy.observe({.time_ns = 1300 * kMilli, .rss_pages = 50'100, .faults = 49'100})) << "too soon";
  EXPECT_TRUE(policy.observe({.time_ns = 2000 * kMilli, .rss_pages = 50'100, .faults = 49'100}));
  policy.read({.time_ns = 2000 * kMilli, .rss_pages = 50'100, .faults = 49'100}, 100);
  EXPECT_FALSE(policy.observe({.time_ns = 9000 * kMilli, .rss_pages = 50'900, .faults = 49'900})) << "hardly moved";
}

TEST(RollupPolicy, CopiesAtOneSizeAreMovementToo) {
  RollupPolicy policy;
  policy.read({.time_ns = 1000 * kMilli, .rss_pages = 10'000, .faults = 100}, 100);
  EXPECT_FALSE(policy.observe({.time_ns = 1500 * kMilli, .rss_pages = 10'000, .faults = 5000}));
  EXPECT_TRUE(policy.observe({.time_ns = 2000 * kMilli, .rss_pages = 10'000, .faults = 9000}));
}

TEST(RollupPolicy, OneThatIsAloneRestsLongerBefore) {
  RollupPolicy policy;
  policy.read({.time_ns = 1000 * kMilli, .rss_pages = 1000}, 100);
  const auto moved_at = [](std::int64_t ms) { return PollPoint{.time_ns = ms * kMilli, .rss_pages = 50'000}; };
  EXPECT_FALSE(policy.observe(moved_at(2000), true));
  EXPECT_FALSE(policy.observe(moved_at(2900), true)) << "it may grow slowly";
  EXPECT_TRUE(policy.observe(moved_at(2900))) << "others may share pages with it";
  EXPECT_TRUE(policy.observe(moved_at(3000), true));
}

TEST(RollupPolicy, WhatCostsMuchIsReadRarely) {
  RollupPolicy policy;
  constexpr std::int64_t kCost = 200 * kMilli;
  policy.read({.time_ns = 1000 * kMilli, .rss_pages = 8'000'000}, kCost);
  EXPECT_EQ(policy.expected_cpu_ns(4'000'000), kCost / 2);
  EXPECT_FALSE(policy.observe({.time_ns = 1010 * kMilli, .rss_pages = 4'000'000}));
  const std::int64_t due_ns = 1000 * kMilli + RollupPolicy::kCostsBetween * kCost;
  EXPECT_FALSE(policy.observe({.time_ns = due_ns - 1, .rss_pages = 4'000'000}));
  EXPECT_FALSE(policy.is_old(due_ns - 1));
  EXPECT_TRUE(policy.observe({.time_ns = due_ns, .rss_pages = 4'000'000}));
}

TEST(PeakPolicy, AsksAtPeaksATenthHigherAndNotTooOften) {
  PeakPolicy policy;
  constexpr std::int64_t kSecond = 1'000'000'000;
  EXPECT_FALSE(policy.observe({.time_ns = 5 * kSecond, .rss_pages = 1000, .faults = 0})) << "it has told its start";
  EXPECT_FALSE(policy.observe({.time_ns = 5 * kSecond + kSecond / 2, .rss_pages = 5000, .faults = 0})) << "too soon";
  EXPECT_FALSE(policy.observe({.time_ns = 6 * kSecond, .rss_pages = 1100, .faults = 0})) << "no higher";
  EXPECT_TRUE(policy.observe({.time_ns = 6 * kSecond, .rss_pages = 1101, .faults = 0}));
  EXPECT_FALSE(policy.observe({.time_ns = 8 * kSecond, .rss_pages = 1101, .faults = 0})) << "the same peak";
  EXPECT_TRUE(policy.observe({.time_ns = 85 * kSecond, .rss_pages = 10'000, .faults = 0}));
  EXPECT_FALSE(policy.observe({.time_ns = 94 * kSecond, .rss_pages = 20'000, .faults = 0})) << "once in 10 s";
  EXPECT_TRUE(policy.observe({.time_ns = 95 * kSecond, .rss_pages = 20'000, .faults = 0}));
  EXPECT_FALSE(policy.observe({.time_ns = 200 * kSecond, .rss_pages = 15'000, .faults = 0})) << "below the peak";
}

// Asks at every tick for a walk of `cost_ns`, if `choice` then one that follows growth, if `must` one that
// must happen; returns what was spent.
std::int64_t spend_all(WalkBudget& budget, std::int64_t end_ns, std::int64_t cost_ns, bool choice, bool must) {
  std::int64_t spent_ns = 0;
  for (std::int64_t now = 0; now < end_ns; now += 100'000'000)
    for (const bool kind : {false, true}) {
      if (!(kind ? must && budget.allows_overdraft(now) : choice && budget.allows(now, cost_ns))) continue;
      budget.spend(cost_ns, kind);
      spent_ns += cost_ns;
    }
  return spent_ns;
}

TEST(WalkBudget, StaysAtItsShareOverTimeWhateverTheWalksAreFor) {
  constexpr std::int64_t kCost = 5'000'000, kEnd = 1'000'000'000'000;
  constexpr double kRestNs = (kEnd - WalkBudget::kFirstNs) * WalkBudget::kRestPart;
  constexpr auto kEarned = static_cast<std::int64_t>((WalkBudget::kFirstNs + kRestNs) * WalkBudget::kShare);
  for (const auto& [choice, must] : {std::pair(true, false), std::pair(false, true), std::pair(true, true)}) {
    WalkBudget budget(0);
    const std::int64_t spent_ns = spend_all(budget, kEnd, kCost, choice, must);
    EXPECT_LE(spent_ns, kEarned + 3 * WalkBudget::kBurstNs + 2 * kCost) << choice << must;
    EXPECT_GE(spent_ns, kEarned - 2 * kCost) << choice << must;
  }
}

// What was spent in two hours, of whose second half memory moves, by a job that keeps so many cores busy.
std::int64_t spend_for_hours(double busy_cores, std::int64_t& moving_ns) {
  constexpr std::int64_t kHour = 3'600'000'000'000, kTick = 100'000'000, kCost = 1'000'000;
  WalkBudget budget(0);
  std::int64_t rest_ns = 0;
  moving_ns = 0;
  for (std::int64_t now = 0; now < 2 * kHour; now += kTick) {
    budget.observe(now, now >= kHour, busy_cores);
    while (budget.allows(now, kCost)) {
      budget.spend(kCost, false);
      (now < kHour ? rest_ns : moving_ns) += kCost;
    }
  }
  return rest_ns;
}

TEST(WalkBudget, TakesMoreWhileMemoryMovesAndOfEachBusyCore) {
  for (const double cores : {0.2, 1.0, 4.0}) {
    std::int64_t moving_ns = 0;
    const auto rest_ns = static_cast<double>(spend_for_hours(cores, moving_ns));
    const double share = WalkBudget::kShare * std::max(cores, 1.0) * 3600e9;
    EXPECT_NEAR(rest_ns, share * (WalkBudget::kRestPart + 1.0 / 90), share / 50) << cores;
    EXPECT_NEAR(static_cast<double>(moving_ns), share, share / 50) << cores;
  }
}

TEST(WalkBudget, LetsWhatMustHappenOverdrawItOnce) {
  WalkBudget budget(0);
  budget.spend(WalkBudget::kBurstNs + 1, true);
  EXPECT_TRUE(budget.allows_overdraft(0));
  budget.spend(WalkBudget::kBurstNs, true);
  EXPECT_FALSE(budget.allows_overdraft(0));
  EXPECT_TRUE(budget.allows_overdraft(1'000'000'000));
}

TEST(WalkBudget, FollowsGrowthHoweverMuchHadToHappen) {
  WalkBudget budget(0);
  budget.spend(100 * WalkBudget::kBurstNs, true);
  EXPECT_TRUE(budget.allows(0, WalkBudget::kBurstNs));
  budget.spend(WalkBudget::kBurstNs, false);
  EXPECT_FALSE(budget.allows(0, 0));
  EXPECT_TRUE(budget.allows(10'000'000'000, 10'000'000));
}

TEST(WalkBudget, LetsAWalkThatCostsMoreThanItHoldsWaitUntilItIsFull) {
  WalkBudget budget(0);
  EXPECT_TRUE(budget.allows(0, 10 * WalkBudget::kBurstNs));
  budget.spend(WalkBudget::kBurstNs / 2, false);
  EXPECT_FALSE(budget.allows(0, 10 * WalkBudget::kBurstNs));
  EXPECT_TRUE(budget.allows(100'000'000'000, 10 * WalkBudget::kBurstNs));
}

TEST(WalkBudget, IsNotForWalksOnRequest) {
  WalkBudget budget(0);
  budget.spend_beside(100 * WalkBudget::kBurstNs);
  budget.settle(100 * WalkBudget::kBurstNs + WalkBudget::kBurstNs / 2);
  EXPECT_TRUE(budget.allows(0, WalkBudget::kBurstNs));
  EXPECT_TRUE(budget.allows_overdraft(0));
  budget.settle(102 * WalkBudget::kBurstNs + WalkBudget::kBurstNs / 2);
  EXPECT_FALSE(budget.allows_overdraft(0)) << "what nobody asked for is charged";
}

TEST(WalkBudget, CountsWhatNoWalkWasChargedWith) {
  WalkBudget budget(0);
  budget.spend(WalkBudget::kBurstNs / 2, false);
  budget.settle(WalkBudget::kBurstNs / 2);
  EXPECT_TRUE(budget.allows_overdraft(0));
  budget.settle(3 * WalkBudget::kBurstNs);
  EXPECT_FALSE(budget.allows_overdraft(0));
  EXPECT_TRUE(budget.allows(0, 1));
}

TEST(ManifestText, ReadsBackWhatWasWritten) {
  Manifest manifest;
  manifest.version = "9";
  manifest.command = {"a", "b c", "\xff\xfe"};
  manifest.state = "complete";
  manifest.started_ns = 123456789012345;
  manifest.options = {{"mode", "exact"}};
  manifest.exit_signal = "SIGKILL";
  manifest.dropped_records = 7;
  const auto read = parse_manifest(render_manifest(manifest), "m");
  ASSERT_TRUE(read.ok()) << read.error();
  EXPECT_EQ(read->command[1], "b c");
  EXPECT_EQ(read->started_ns, manifest.started_ns);
  EXPECT_EQ(read->options, manifest.options);
  EXPECT_EQ(read->exit_signal, "SIGKILL");
  EXPECT_FALSE(read->exit_code.has_value());
  EXPECT_EQ(read->dropped_records, 7);
}

TEST(ManifestText, ListsTheClosedProcesses) {
  Manifest manifest;
  EXPECT_FALSE(parse_manifest(render_manifest(manifest), "m")->processes.has_value());
  manifest.processes = {{"node.1.7", 3, 40}, {"node.2.9", 0, 1ULL << 40}, {"node.3.9", std::nullopt, 1}};
  const auto read = parse_manifest(render_manifest(manifest), "m");
  ASSERT_TRUE(read.ok()) << read.error();
  EXPECT_TRUE(read->is_sound);
  EXPECT_EQ(read->format, trace::kFormatVersion);
  EXPECT_EQ(read->processes, manifest.processes);
}

TEST(ManifestText, MayEndWithEmptyLines) {
  const std::string text = render_manifest({});
  EXPECT_TRUE(parse_manifest(text + "\n\n", "m")->is_sound);
  EXPECT_FALSE(parse_manifest(text + "\n ", "m")->is_sound);
}

TEST(ManifestText, AnyOtherByteIsNoticed) {
  Manifest manifest;
  manifest.command = {"a"};
  manifest.processes = {{"node.1.7", 3, 40}};
  const std::string text = render_manifest(manifest);
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (const char other : {' ', '0', '1', '"', ',', 'x'}) {
      if (text[at] == other) continue;
      std::string changed = text;
      changed[at] = other;
      const auto read = parse_manifest(changed, "m");
      EXPECT_TRUE(!read || !read->is_sound) << changed;
    }
    const auto cut = parse_manifest(text.substr(0, at), "m");
    EXPECT_TRUE(!cut || !cut->is_sound) << at;
  }
}

TEST(ManifestText, WithoutChecksumIsNotSound) {
  const auto read = parse_manifest(R"({"schema":"whyrss.recording/1","state":"complete"})", "m");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->format, 0);  // of format 2 and before, which had none
  EXPECT_FALSE(read->is_sound);
  EXPECT_FALSE(parse_manifest(R"({"schema":"whyrss.recording/1","format":3})", "m")->is_sound);
}

TEST(ManifestText, RefusesWhatIsNone) {
  for (const char* text : {"", "{", "[]", "{}", R"({"schema":"whyrss.recording/2"})", R"({"schema":5})"})
    EXPECT_FALSE(parse_manifest(text, "m").ok()) << text;
  const auto wrong_types = parse_manifest(
      R"({"schema":"whyrss.recording/1","command":"x","exit":[1],"lost":{"dropped_records":"y"},"options":{"a":1}})",
      "m");
  ASSERT_TRUE(wrong_types.ok());
  EXPECT_TRUE(wrong_types->command.empty());
}

TEST(Cgroup, IsFoundOnAMachineThatHasOne) {
  const auto group = read_cgroup(getpid());
  if (!group) GTEST_SKIP() << "no memory cgroup is readable here";
  EXPECT_TRUE(read_usage(*group).value_or(0) > 0) << group->path;
}

// A program may start more short-lived children in a second than there are searches.
TEST(ProcessNames, OneSearchTellsOfAllThatHaveEnded) {
  ProcessNames names;
  const std::uint64_t own_ticks = start_ticks_of(getpid()).value();
  EXPECT_EQ(names.pid_of({.pid = static_cast<std::uint32_t>(getpid()), .start_ticks = own_ticks}, 1), getpid());
  constexpr std::int64_t kNowNs = 10'000'000'000;
  for (std::uint32_t number = 1; number <= 50; ++number)  // beyond any pid
    EXPECT_EQ(names.pid_of({.pid = 5'000'000 + number, .start_ticks = own_ticks - 1}, kNowNs), 0) << number;
}

// One whose /proc is out of its reach does not know when it was born.
TEST(ProcessNames, WhoCouldNotReadItsStartIsWhoMapsThePool) {
  const pid_t own = getpid(), parent = getppid();
  ProcessNames names([own](pid_t pid) { return pid == own; });
  const ProcessKey key{.pid = static_cast<std::uint32_t>(own), .start_ticks = 0};
  EXPECT_EQ(names.pid_of(key, 1, true), own);
  EXPECT_EQ(names.own_key(key), (ProcessKey{.pid = key.pid, .start_ticks = *start_ticks_of(own)}));
  const ProcessKey other{.pid = static_cast<std::uint32_t>(parent), .start_ticks = 0};
  EXPECT_EQ(names.pid_of(other, 1, true), 0) << "the same number in another namespace";
  EXPECT_EQ(names.own_key(other), other);
}

TEST(ProcessNames, WhoWasBornAfterTheSearchIsSoughtLater) {
  ProcessNames names;
  constexpr std::uint64_t kInTheFuture = std::uint64_t{1} << 60;
  constexpr std::int64_t kNowNs = 10'000'000'000;
  EXPECT_EQ(names.pid_of({.pid = 1, .start_ticks = kInTheFuture}, kNowNs), 0);
  EXPECT_EQ(names.pid_of({.pid = 2, .start_ticks = kInTheFuture}, kNowNs), std::nullopt);
  EXPECT_EQ(names.pid_of({.pid = 2, .start_ticks = kInTheFuture}, kNowNs, true), 0);
  EXPECT_EQ(names.pid_of({.pid = 3, .start_ticks = kInTheFuture}, kNowNs + 200'000'000), 0);
}

}  // namespace
}  // namespace whyrss::collect_parts_test
