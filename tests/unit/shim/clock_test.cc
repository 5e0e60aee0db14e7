#include "shim/trace/clock.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "shim/trace/own_calls.h"

namespace whyrss::trace {
namespace {

using namespace std::chrono_literals;

std::uint64_t kernel_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

TEST(Clock, GoesOnWithoutTheCounter) {
  const std::uint64_t before_ns = kernel_ns();
  EXPECT_GE(now_ns(), before_ns);  // by the system call, at first
  use_vdso(&clock_gettime);
  start_ticks(true);
  std::this_thread::sleep_for(20ms);
  const std::uint64_t last_ns = now_ns(), last_ticks = ticks_now();
  leave_tsc();
  EXPECT_EQ(g_clock.read.load(), nullptr);
  EXPECT_FALSE(g_clock.has_tsc.load());
  const std::uint64_t next_ticks = ticks_now();
  EXPECT_GE(now_ns(), last_ns);
  EXPECT_GE(next_ticks, last_ticks);

  // In the counter's own rate: between two readings of it there are as many of ours, but for a thousandth.
  const std::uint64_t outer_begin = __rdtsc(), begin = ticks_now(), inner_begin = __rdtsc();
  std::this_thread::sleep_for(50ms);
  const std::uint64_t inner_end = __rdtsc(), end = ticks_now(), outer_end = __rdtsc();
  const auto least = static_cast<double>(inner_end - inner_begin) * 0.999;
  const auto most = static_cast<double>(outer_end - outer_begin) * 1.001;
  EXPECT_GE(static_cast<double>(end - begin), least);
  EXPECT_LE(static_cast<double>(end - begin), most);
}

TEST(Clock, KnowsTheReadersTimeNamespaceWithoutAFile) {
  const WallDistances reader = wall_distances(nullptr), own = wall_distances(&clock_gettime);
  EXPECT_TRUE(are_offsets_same(own, reader));
  EXPECT_FALSE(are_offsets_same({own.from_monotonic_ns - 1'000'000'000, own.from_boottime_ns}, reader));
  EXPECT_FALSE(are_offsets_same({own.from_monotonic_ns, own.from_boottime_ns + 1'000'000'000}, reader));
  EXPECT_FALSE(are_offsets_same(own, {}));  // a pool of an older version
  EXPECT_FALSE(are_offsets_same({}, {}));
}

TEST(Clock, StandsStillWhereNothingMayBeAsked) {
  freeze_clock();
  close_kernel();
  const std::uint64_t frozen_ns = now_ns();
  std::this_thread::sleep_for(2ms);
  EXPECT_EQ(now_ns(), frozen_ns);
  open_kernel();
  thaw_clock();
  EXPECT_GT(now_ns(), frozen_ns);
}

TEST(OwnCalls, AreRefusedWhileTheKernelIsClosed) {
  EXPECT_GT(own_syscall(SYS_getpid), 0);
  close_kernel();
  EXPECT_EQ(own_syscall(SYS_getpid), -EPERM);
  EXPECT_FALSE(KernelVisit());
  EXPECT_EQ(g_kernel_door.visits.load(), 0U);
  open_kernel();
  EXPECT_GT(own_syscall(SYS_getpid), 0);
}

TEST(OwnCalls, AVisitUnderWayGoesOn) {
  const KernelVisit visit;
  ASSERT_TRUE(visit);
  close_kernel();  // gives up waiting for it
  EXPECT_EQ(own_syscall(SYS_getpid), -EPERM);
  EXPECT_EQ(g_kernel_door.visits.load(), 1U);
  open_kernel();
}

TEST(OwnCalls, ForkChildrenForgetVisits) {
  g_kernel_door.visits = 3;  // of threads that the child does not have
  forget_visits();
  close_kernel();
  open_kernel();
  EXPECT_EQ(g_kernel_door.visits.load(), 0U);
}

}  // namespace
}  // namespace whyrss::trace
