// The shim's unwinder while code comes and goes, and when a walk is left in its middle. The reference is the
// compiler's unwinder, by way of the C library's backtrace(): libunwind keeps rules of code that has gone.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csetjmp>
#include <csignal>
#include <memory>
#include <set>
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

using Backtrace = int (*)(void**, int);

// By its library: libunwind has a function of this name too.
Backtrace libc_backtrace() {
  static const auto function =
      reinterpret_cast<Backtrace>(dlsym(dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD), "backtrace"));
  return function;
}

bool g_code_stays = false;  // the sums of stacks differ from one dlclose to the next

// Same addresses as backtrace(), from the caller's frame on, with the memo and without it.
[[gnu::noinline, gnu::optimize("no-omit-frame-pointer")]] bool is_equal_here(StackScratch& warm, StackScratch& cold) {
  const Caller caller = caller_here();
  const NativeWalk walk = walk_native(caller, warm);
  cold.memo = {};
  const NativeWalk plain = walk_native(caller, cold);
  std::array<void*, StackMemo::kEnd> addresses{};
  const auto end = addresses.begin() + libc_backtrace()(addresses.data(), static_cast<int>(addresses.size()));
  const auto begin = std::find(addresses.begin(), end, reinterpret_cast<void*>(caller.ip));
  const std::size_t first = warm.memo.first();
  if (g_code_stays && warm.memo.hash(first) != cold.memo.hash(first)) return false;
  if (static_cast<std::size_t>(end - begin) != walk.count || plain.count != walk.count || walk.incomplete) return false;
  for (std::size_t i = 0; i < walk.count; ++i) {
    const auto expected = reinterpret_cast<std::uint64_t>(begin[static_cast<long>(i)]);
    if (warm.memo.frame(first + i).ip != expected || cold.memo.frame(first + i).ip != expected) return false;
  }
  return true;
}

struct Scratches {
  std::unique_ptr<StackScratch> warm = std::make_unique<StackScratch>(), cold = std::make_unique<StackScratch>();
  std::uint64_t equal = 0, unequal = 0;
  void compare() { is_equal_here(*warm, *cold) ? ++equal : ++unequal; }
};

// A plugin as long as it is loaded; tells the unwinder as the dlclose hook does.
class Plugin {
 public:
  explicit Plugin(const char* path) : library_(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
    EXPECT_NE(library_, nullptr) << dlerror();
    function_ = reinterpret_cast<Function>(dlsym(library_, "call_through_frame"));
  }
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;
  ~Plugin() {
    begin_code_removal();
    dlclose(library_);
    end_code_removal(true);
  }
  void call(void (*callback)(void*), void* argument) const { function_(callback, argument); }
  [[nodiscard]] const void* address() const { return reinterpret_cast<const void*>(function_); }

 private:
  using Function = void (*)(void (*)(void*), void*);
  void* library_;
  Function function_ = nullptr;
};

void compare_in_callback(void* scratches) { static_cast<Scratches*>(scratches)->compare(); }

class Reload : public testing::Test {
 protected:
  static void SetUpTestSuite() { start_unwind_walk(); }
};

TEST_F(Reload, FindsTheFramesOfAnotherLibraryAtTheSameAddress) {
  Scratches scratches;
  std::set<const void*> small_places, large_places;
  for (int round = 0; round < 20; ++round) {
    {
      const Plugin plugin(WHYRSS_SMALL_FRAME_PLUGIN);
      small_places.insert(plugin.address());
      plugin.call(compare_in_callback, &scratches);
    }
    const Plugin plugin(WHYRSS_LARGE_FRAME_PLUGIN);
    large_places.insert(plugin.address());
    plugin.call(compare_in_callback, &scratches);
  }
  EXPECT_EQ(scratches.unequal, 0U);
  EXPECT_EQ(scratches.equal, 40U);
  RecordProperty("at_the_same_place", small_places == large_places ? "yes" : "no");
}

[[gnu::noinline]] void compare_at_depth(Scratches& scratches, int depth) {
  if (depth == 0)
    scratches.compare();
  else
    compare_at_depth(scratches, depth - 1);
  asm volatile("" : : "r"(&depth) : "memory");
}

TEST_F(Reload, WalksWhileOtherThreadsLoadAndUnload) {
  std::atomic<int> loading{2};
  const auto load = [&loading](const char* path) {
    Scratches scratches;
    for (int round = 0; round < 300; ++round) Plugin(path).call(compare_in_callback, &scratches);
    EXPECT_EQ(scratches.unequal, 0U);
    loading.fetch_sub(1);
  };
  const auto walk = [&loading] {
    Scratches scratches;
    for (int round = 0; loading.load() != 0; ++round) compare_at_depth(scratches, round % 40);
    EXPECT_EQ(scratches.unequal, 0U);
    EXPECT_GT(scratches.equal, 0U);
  };
  std::vector<std::thread> threads;
  threads.emplace_back(load, WHYRSS_SMALL_FRAME_PLUGIN);
  threads.emplace_back(load, WHYRSS_LARGE_FRAME_PLUGIN);
  threads.emplace_back(walk);
  threads.emplace_back(walk);
  for (auto& thread : threads) thread.join();
}

thread_local sigjmp_buf t_way_out;
thread_local volatile sig_atomic_t t_may_jump = 0;

void jump_out(int /*signal*/) {
  if (t_may_jump == 0) return;
  t_may_jump = 0;  // once: what is compared then is not to be left
  siglongjmp(t_way_out, 1);
}

[[gnu::noinline]] void walk_at_depth(StackScratch& scratch, int depth) {
  if (depth == 0)
    walk_native(caller_here(), scratch);
  else
    walk_at_depth(scratch, depth - 1);
  asm volatile("" : : "r"(&depth) : "memory");
}

// A handler of the program leaves the hook, and with it a walk, by longjmp: what the memo holds then must not be
// believed. The signal comes at any instruction.
TEST_F(Reload, ForgetsAWalkThatWasLeftByLongjmp) {
  struct sigaction action {};
  action.sa_handler = jump_out;
  sigaction(SIGUSR2, &action, nullptr);
  constexpr int kJumps = 2000;
  g_code_stays = true;
  std::atomic<int> jumps{0};
  std::thread walker([&jumps] {
    Scratches scratches;
    volatile int depth = 0;
    compare_at_depth(scratches, depth);  // binds what is bound at first use
    walk_at_depth(*scratches.warm, depth);
    while (jumps.load() < kJumps) {
      if (sigsetjmp(t_way_out, 1) != 0) {
        jumps.fetch_add(1);
        compare_at_depth(scratches, depth % 7 + 20);
      }
      t_may_jump = 1;
      for (int i = 0; i < 50; ++i) {
        depth = (depth + 11) % 40;
        walk_at_depth(*scratches.warm, depth);
      }
      t_may_jump = 0;
      compare_at_depth(scratches, depth);
    }
    EXPECT_EQ(scratches.unequal, 0U);
  });
  while (jumps.load() < kJumps) {
    pthread_kill(walker.native_handle(), SIGUSR2);
    std::this_thread::yield();
  }
  walker.join();
  g_code_stays = false;
}

}  // namespace
}  // namespace whyrss::shim
