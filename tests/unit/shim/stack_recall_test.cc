// Stacks found again by their words: never another than a walk finds.
#include "shim/stacks/stack_recall.h"

#include <alloca.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csetjmp>
#include <csignal>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "shim/events/caller.h"
#include "shim/events/own_memory_events.h"
#include "shim/observe/observe.h"
#include "shim/stacks/stack_scratch.h"
#include "shim/stacks/unwind_walk.h"

namespace whyrss::shim {

// The shim reports its tables to the trace; here there is none.
void report_own_memory(ThreadState& /*thread*/, const void* /*memory*/, std::size_t /*size_bytes*/) noexcept {}

namespace {

// What exact mode does for a block, with a walk beside each recall.
struct Taker {
  std::unique_ptr<StackScratch> scratch = std::make_unique<StackScratch>();
  std::unique_ptr<StackRecall> recall = std::make_unique<StackRecall>();
  std::map<std::vector<std::uint64_t>, std::uint32_t> ids;
  std::uint64_t changes = 1;
  std::uint32_t last = trace::kNoStack;
  int found = 0, walked = 0, wrong = 0;

  void take(const Caller& caller) {
    const RecallKey key{.ip = caller.ip, .sp = caller.sp, .bp = caller.bp, .changes = changes};
    last = static_cast<std::uint32_t>(recall->find(key));
    const NativeWalk walk = walk_native(caller, *scratch);
    std::vector<std::uint64_t> ips;
    for (std::size_t i = 0; i < walk.count; ++i) ips.push_back(scratch->memo.frame(walk.first + i).ip);
    const std::uint32_t id = ids.try_emplace(ips, static_cast<std::uint32_t>(ids.size() + 1)).first->second;
    if (last != trace::kNoStack) {
      ++found;
      wrong += last != id ? 1 : 0;
      return;
    }
    ++walked;
    if (walk.lasting && scratch->memo.can_be_verified()) recall->learn(key, scratch->memo, id);
  }
};

[[gnu::noinline, gnu::optimize("no-omit-frame-pointer")]] void take_here(Taker& taker) { taker.take(caller_here()); }

// Four call sites a step, of frames of one size; or of others, which are found by RBP, where `room` has bits.
[[gnu::noinline]] void wander(Taker& taker, unsigned path, unsigned room, int calls);
[[gnu::noinline]] void wander_with_room(Taker& taker, unsigned path, unsigned room, int calls) {
  auto* bytes = static_cast<char*>(alloca(16 + room % 64 * 16));
  asm volatile("" : : "r"(bytes) : "memory");
  wander(taker, path, room >> 4, calls);
  asm volatile("" : : "r"(bytes) : "memory");
}
void wander(Taker& taker, unsigned path, unsigned room, int calls) {
  if (calls == 0) {
    take_here(taker);
  } else if (room % 4 == 3) {
    wander_with_room(taker, path, room >> 2, calls - 1);
  } else {
    switch (path & 3) {
      case 0:
        wander(taker, path >> 2, room >> 2, calls - 1);
        asm volatile("nop" ::: "memory");
        break;
      case 1:
        wander(taker, path >> 2, room >> 2, calls - 1);
        asm volatile("nop;nop" ::: "memory");
        break;
      case 2:
        wander(taker, path >> 2, room >> 2, calls - 1);
        asm volatile("nop;nop;nop" ::: "memory");
        break;
      default:
        wander(taker, path >> 2, room >> 2, calls - 1);
        asm volatile("nop;nop;nop;nop" ::: "memory");
        break;
    }
  }
  asm volatile("" ::: "memory");
}

[[gnu::noinline]] void descend(Taker& taker, int depth) {
  if (depth == 0)
    take_here(taker);
  else
    descend(taker, depth - 1);
  asm volatile("" : : "r"(&depth) : "memory");
}

class Recall : public testing::Test {
 protected:
  static void SetUpTestSuite() { start_unwind_walk(); }
  Taker taker_;
  unsigned next_random() { return static_cast<unsigned>(random_() >> 8); }

 private:
  std::mt19937 random_{7};
};

TEST_F(Recall, FindsPathsOfOneShape) {
  for (int i = 0; i < 20'000; ++i) wander(taker_, next_random(), 0, 5);
  EXPECT_EQ(taker_.wrong, 0);
  EXPECT_EQ(taker_.ids.size(), 1024U);
  EXPECT_GT(taker_.found, 18'000);
}

TEST_F(Recall, IsRightWhereShapesChange) {
  for (int i = 0; i < 200'000; ++i) {
    const unsigned path = next_random();
    wander(taker_, path % 64, i % 3 == 0 ? next_random() % 256 : path % 16, 4);
  }
  EXPECT_EQ(taker_.wrong, 0);
  EXPECT_GT(taker_.found, 10'000);
  EXPECT_GT(taker_.ids.size(), 256U);
}

TEST_F(Recall, OfAnotherThread) {
  std::thread([this] {
    for (int i = 0; i < 5000; ++i) wander(taker_, next_random() & 15, 0, 3);
  }).join();
  EXPECT_EQ(taker_.wrong, 0);
  EXPECT_GT(taker_.found, 4900);
}

TEST_F(Recall, FindsNothingAfterChanges) {
  std::vector<bool> found;
  for (const std::uint64_t changes : {1, 1, 2, 2, 1}) {
    taker_.changes = changes;
    wander(taker_, 1, 0, 3);
    found.push_back(taker_.last != trace::kNoStack);
  }
  EXPECT_EQ(found, (std::vector<bool>{false, true, false, true, false}));
}

TEST_F(Recall, TellsCallSitesOfOneFunctionApart) {
  for (int i = 0; i < 3; ++i) wander(taker_, 1, 0, 3);
  EXPECT_NE(taker_.last, trace::kNoStack);
  wander(taker_, 1, 0, 3);
  EXPECT_EQ(taker_.last, trace::kNoStack);
  EXPECT_EQ(taker_.wrong, 0);
}

TEST_F(Recall, LeavesDeepStacksToTheWalk) {
  for (int i = 0; i < 10; ++i) descend(taker_, 20);
  EXPECT_EQ(taker_.found, 9);
  for (int i = 0; i < 10; ++i) descend(taker_, 80);
  EXPECT_EQ(taker_.found, 9);
  EXPECT_EQ(taker_.wrong, 0);
}

Taker* g_taker;
sigjmp_buf g_out;
void on_fault(int) {
  take_here(*g_taker);
  siglongjmp(g_out, 1);
}
[[gnu::noinline]] void call_nothing() {
  void (*volatile nothing)() = nullptr;
  if (sigsetjmp(g_out, 1) == 0) nothing();
}
[[gnu::noinline]] void read_nothing() {
  volatile int* volatile nothing = nullptr;
  if (sigsetjmp(g_out, 1) == 0) *nothing = *nothing + 1;
}

// The handler's frames are the same ones; where the program was, address 0 or another, is a word like theirs.
TEST_F(Recall, OfHandlersThatInterruptedDifferentCode) {
  g_taker = &taker_;
  std::vector<std::byte> memory(64 * 1024);
  const stack_t alternate{.ss_sp = memory.data(), .ss_flags = 0, .ss_size = memory.size()};
  ASSERT_EQ(sigaltstack(&alternate, nullptr), 0);
  struct sigaction action {};
  action.sa_handler = on_fault;
  action.sa_flags = SA_ONSTACK;
  ASSERT_EQ(sigaction(SIGSEGV, &action, nullptr), 0);
  for (int i = 0; i < 20; ++i) i % 3 == 0 ? call_nothing() : read_nothing();
  EXPECT_EQ(signal(SIGSEGV, SIG_DFL), on_fault);
  const stack_t none{.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
  ASSERT_EQ(sigaltstack(&none, nullptr), 0);
  EXPECT_EQ(taker_.found + taker_.walked, 20);
  EXPECT_EQ(taker_.wrong, 0);
  EXPECT_GE(taker_.ids.size(), 2U);
}

// A shape of more stacks than are remembered: looking for them is in vain, and soon ends for a while.
TEST_F(Recall, StopsLookingInVainForAWhile) {
  std::vector<unsigned> paths{1, 1};
  while (paths.size() < 3000) paths.push_back(next_random());
  paths.resize(40'000, 1);
  std::vector<bool> found;
  for (const unsigned path : paths) {
    wander(taker_, path, 0, 10);
    found.push_back(taker_.last != trace::kNoStack);
  }
  EXPECT_EQ(taker_.wrong, 0);
  EXPECT_TRUE(found[1]);
  const auto again = std::find(found.begin() + 3000, found.end(), true) - found.begin();
  EXPECT_GT(again, 17'000);
  EXPECT_LT(again, 20'000);
}

}  // namespace
}  // namespace whyrss::shim
