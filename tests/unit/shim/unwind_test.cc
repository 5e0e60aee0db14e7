// The shim's own unwinder against libunwind's unw_step: same return addresses, frame by frame, through
// everything that compilers and the C library put on stacks.
#define UNW_LOCAL_ONLY
#include <alloca.h>
#include <gtest/gtest.h>
#include <libunwind.h>
#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
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

std::atomic<std::uint64_t> g_compared{0};
std::atomic<std::uint64_t> g_frames{0};
thread_local std::uint64_t t_compared = 0;

// A coroutine returns to the first instruction of the C library's __start_context: the call before it
// is in no table, so its stacks end as incomplete.
thread_local bool t_in_coroutine = false;

// What libunwind says of the stack of compare_here's caller: return addresses, and pc + 1 where a signal
// interrupted.
std::vector<std::uint64_t> addresses_from(unw_cursor_t& cursor) {
  // mov $15 (rt_sigreturn), %rax; syscall
  constexpr unsigned char kTrampoline[]{0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
  std::vector<std::uint64_t> addresses;
  bool interrupted = false;
  while (unw_step(&cursor) > 0) {
    unw_word_t ip = 0;
    unw_get_reg(&cursor, UNW_REG_IP, &ip);
    if (ip == 0) break;
    addresses.push_back(ip + (interrupted ? 1 : 0));
    interrupted = std::memcmp(reinterpret_cast<const void*>(ip), kTrampoline, sizeof kTrampoline) == 0;
  }
  return addresses;
}

void expect_equal(const NativeWalk& walk, const StackScratch& scratch, const std::vector<std::uint64_t>& expected) {
  const std::size_t first = scratch.memo.first();
  const std::size_t count = std::min(expected.size(), StackMemo::kEnd);
  ASSERT_EQ(walk.count, StackMemo::kEnd - first);
  ASSERT_EQ(walk.count, count) << "after " << g_compared.load() << " equal stacks";
  for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(scratch.memo.frame(first + i).ip, expected[i]) << "frame " << i;
  EXPECT_EQ(walk.truncated, expected.size() > StackMemo::kEnd);
  if (!t_in_coroutine) {
    EXPECT_FALSE(walk.incomplete);
  }
}

// Compares the stack of its caller. Plays the entry point: called like malloc would be. The thread's memo
// has met other stacks before; a walk without one must say the same.
[[gnu::noinline, gnu::optimize("no-omit-frame-pointer")]] void compare_here() {
  const Caller caller = caller_here();
  static thread_local auto warm = std::make_unique<StackScratch>();
  const NativeWalk walk = walk_native(caller, *warm);

  unw_context_t context;
  unw_cursor_t cursor;
  unw_getcontext(&context);
  unw_init_local(&cursor, &context);
  const std::vector<std::uint64_t> expected = addresses_from(cursor);
  ASSERT_FALSE(expected.empty());
  ASSERT_EQ(expected.front(), caller.ip);
  expect_equal(walk, *warm, expected);
  if (testing::Test::HasFatalFailure()) return;

  static thread_local auto cold = std::make_unique<StackScratch>();
  cold->memo = {};
  const NativeWalk plain = walk_native(caller, *cold);
  expect_equal(plain, *cold, expected);
  const std::size_t first = warm->memo.first();
  ASSERT_EQ(cold->memo.hash(first), warm->memo.hash(first));
  for (std::size_t i = first; i < StackMemo::kEnd; ++i) ASSERT_EQ(cold->memo.frame(i).sp, warm->memo.frame(i).sp);
  ++t_compared;
  g_compared.fetch_add(1);
  g_frames.fetch_add(expected.size());
}

void keep(const void* memory) { asm volatile("" : : "r"(memory) : "memory"); }

// A random walk through functions with every kind of frame.
using Step = void (*)(std::mt19937&, int);
void next(std::mt19937& random, int depth);

[[gnu::noinline]] void plain(std::mt19937& random, int depth) {
  next(random, depth);
  keep(&random);
}

[[gnu::noinline]] void with_alloca(std::mt19937& random, int depth) {
  void* memory = alloca(16 + random() % 3000);
  keep(memory);
  next(random, depth);
  keep(memory);
}

[[gnu::noinline]] void with_large_frame(std::mt19937& random, int depth) {
  char memory[100'000];
  keep(memory);
  next(random, depth);
  keep(memory);
}

[[gnu::noinline]] void realigned(std::mt19937& random, int depth) {
  alignas(128) char memory[256];
  keep(memory);
  next(random, depth);
  keep(memory);
}

[[gnu::noinline]] void realigned_with_alloca(std::mt19937& random, int depth, const char* a, const char* b,
                                             const char* c, const char* d, const char* e) {
  alignas(64) char fixed[64];
  void* memory = alloca(16 + random() % 100);
  keep(fixed);
  keep(memory);
  next(random, depth);
  for (const char* text : {a, b, c, d, e}) keep(text);  // arguments on the stack: a frame pointer of its own (DRAP)
}

void many_arguments(std::mt19937& random, int depth) {
  realigned_with_alloca(random, depth, "a", "b", "c", "d", "e");
  keep(&random);
}

[[gnu::noinline, gnu::optimize("no-omit-frame-pointer")]] void with_frame_pointer(std::mt19937& random, int depth) {
  next(random, depth);
  keep(&random);
}

[[gnu::noinline]] void through_function_object(std::mt19937& random, int depth) {
  const std::function<void()> call = [&random, depth, padding = std::array<long, 8>{}] {
    next(random, depth);
    keep(&padding);
  };
  call();
}

struct InDestructor {
  std::mt19937& random;
  int depth;
  ~InDestructor() { next(random, depth); }
};

[[gnu::noinline]] void in_unwinding_destructor(std::mt19937& random, int depth) {
  try {
    const InDestructor guard{random, depth};
    throw 1;
  } catch (int value) {
    keep(&value);
  }
}

thread_local std::mt19937* t_random;
thread_local int t_depth;

[[gnu::noinline]] void through_qsort(std::mt19937& random, int depth) {
  int numbers[2] = {2, 1};
  t_random = &random;
  t_depth = depth;
  qsort(numbers, 2, sizeof(int), [](const void* a, const void* b) {
    next(*t_random, t_depth);
    return *static_cast<const int*>(a) - *static_cast<const int*>(b);
  });
}

void on_signal(int /*signal*/) { next(*t_random, t_depth); }

[[gnu::noinline]] void through_signal(std::mt19937& random, int depth) {
  t_random = &random;
  t_depth = depth;
  pthread_kill(pthread_self(), SIGUSR1);
  keep(&random);
}

[[gnu::noinline]] void through_fault(std::mt19937& random, int depth) {
  t_random = &random;
  t_depth = depth;
  asm volatile("ud2");
  keep(&random);
}

void on_illegal(int /*signal*/, siginfo_t* /*info*/, void* context) {
  next(*t_random, t_depth);
  static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP] += 2;
}

constexpr Step kSteps[] = {plain,
                           with_alloca,
                           with_large_frame,
                           realigned,
                           many_arguments,
                           with_frame_pointer,
                           through_function_object,
                           in_unwinding_destructor,
                           through_qsort,
                           through_signal,
                           through_fault};

bool g_gather_now = false;
void gather();

void next(std::mt19937& random, int depth) {
  if (g_gather_now) return gather();
  if (depth <= 0) return compare_here();
  kSteps[random() % std::size(kSteps)](random, depth - 1);
  if (random() % 4 == 0) compare_here();
}

class Unwind : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    start_unwind_walk();
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_NODEFER;
    sigaction(SIGUSR1, &action, nullptr);
    action.sa_handler = nullptr;
    action.sa_sigaction = on_illegal;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGILL, &action, nullptr);
  }
};

void walk_at_random(unsigned seed, std::uint64_t stacks) {
  std::mt19937 random(seed);
  const std::uint64_t until = t_compared + stacks;
  while (t_compared < until && !testing::Test::HasFatalFailure()) next(random, static_cast<int>(random() % 16));
}

TEST_F(Unwind, EqualsLibunwindOnTheMainThread) {
  walk_at_random(1, 60'000);
  RecordProperty("frames", std::to_string(g_frames.load()));
}

TEST_F(Unwind, EqualsLibunwindInThreads) {
  std::vector<std::thread> threads;
  for (unsigned seed = 10; seed < 14; ++seed) threads.emplace_back(walk_at_random, seed, 15'000);
  for (auto& thread : threads) thread.join();
}

TEST_F(Unwind, EqualsLibunwindOnAnAlternateSignalStack) {
  std::vector<char> memory(1 << 20);
  const stack_t stack{.ss_sp = memory.data(), .ss_flags = 0, .ss_size = memory.size()};
  ASSERT_EQ(sigaltstack(&stack, nullptr), 0);
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_NODEFER | SA_ONSTACK;
  struct sigaction before {};
  sigaction(SIGUSR1, &action, &before);
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) through_signal(random, 2);
  sigaction(SIGUSR1, &before, nullptr);
  const stack_t off{.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
  sigaltstack(&off, nullptr);
}

ucontext_t g_main_context;
ucontext_t g_coroutine;

void coroutine_body() {
  std::mt19937 random(4);
  for (int round = 0; round < 50; ++round) plain(random, 5);
}

TEST_F(Unwind, EqualsLibunwindInACoroutine) {
  std::vector<char> memory(4 << 20);
  getcontext(&g_coroutine);
  g_coroutine.uc_stack.ss_sp = memory.data();
  g_coroutine.uc_stack.ss_size = memory.size();
  g_coroutine.uc_link = &g_main_context;
  makecontext(&g_coroutine, coroutine_body, 0);
  t_in_coroutine = true;
  swapcontext(&g_main_context, &g_coroutine);
  t_in_coroutine = false;
}

[[gnu::noinline]] void recurse(int depth) {
  if (depth == 0)
    compare_here();
  else
    recurse(depth - 1);
  keep(&depth);
}

// Two pages that can be read between two that cannot.
class FencedPages {
 public:
  FencedPages() {
    void* mapping = mmap(nullptr, 4 * kPageBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    start_ = reinterpret_cast<std::uint64_t>(mapping) + kPageBytes;
    EXPECT_EQ(mprotect(reinterpret_cast<void*>(start_), 2 * kPageBytes, PROT_READ | PROT_WRITE), 0);
  }
  FencedPages(const FencedPages&) = delete;
  FencedPages& operator=(const FencedPages&) = delete;
  ~FencedPages() { munmap(reinterpret_cast<void*>(start_ - kPageBytes), 4 * kPageBytes); }
  [[nodiscard]] std::uint64_t start() const { return start_; }
  [[nodiscard]] std::uint64_t end() const { return start_ + 2 * kPageBytes; }

  static constexpr std::uint64_t kPageBytes = 4096;

 private:
  std::uint64_t start_;
};

void on_both_kinds_of_threads(const std::function<void()>& body) {
  body();
  std::thread(body).join();
}

TEST_F(Unwind, ReadsNoFurtherThanAForeignStackGoes) {
  on_both_kinds_of_threads([] {
    const FencedPages pages;
    KnownStack known{};
    StackBounds stack(known);
    EXPECT_FALSE(stack.readable(pages.start())) << "nothing was entered";
    for (int round = 0; round < 2; ++round) {
      stack.enter(pages.start() + 64);
      EXPECT_FALSE(stack.readable(pages.start() + 56)) << "below sp";
      EXPECT_TRUE(stack.readable(pages.start() + 64));
      EXPECT_FALSE(stack.readable(pages.start() + 65)) << "not aligned";
      EXPECT_TRUE(stack.readable(pages.end() - 8));
      EXPECT_FALSE(stack.readable(pages.end()));
      EXPECT_TRUE(stack.readable(pages.end() - 8)) << "still";
      EXPECT_FALSE(stack.readable(UINT64_MAX - 7)) << "its end wraps round";
      stack.enter(pages.end());
      EXPECT_FALSE(stack.readable(pages.end()));
      stack.enter(UINT64_MAX - 7);
      EXPECT_FALSE(stack.readable(UINT64_MAX - 7));
      EXPECT_EQ(known.low, 0U);
    }
  });
}

TEST_F(Unwind, KnowsTheOwnStackOfAThread) {
  std::thread([] {
    const auto here = reinterpret_cast<std::uint64_t>(__builtin_frame_address(0));
    const auto thread_block = reinterpret_cast<std::uint64_t>(__builtin_thread_pointer());
    KnownStack known{};
    StackBounds stack(known);
    stack.enter(here);
    EXPECT_EQ(known.low, here & ~(FencedPages::kPageBytes - 1));
    EXPECT_TRUE(stack.readable(thread_block - 8));
    EXPECT_FALSE(stack.readable(thread_block));
    stack.enter(here - 20'000);
    EXPECT_EQ(known.low, (here - 20'000) & ~(FencedPages::kPageBytes - 1));
    // A stack below this one: there is the guard page in between.
    pthread_attr_t attributes;
    void* start = nullptr;
    std::size_t size_bytes = 0;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &start, &size_bytes);
    pthread_attr_destroy(&attributes);
    const KnownStack before = known;
    stack.enter(reinterpret_cast<std::uint64_t>(start) - 8);
    EXPECT_FALSE(stack.readable(reinterpret_cast<std::uint64_t>(start) - 8));
    EXPECT_EQ(known.low, before.low);
  }).join();
}

std::set<std::uint64_t> g_addresses;  // return addresses with every kind of rule

[[gnu::noinline, gnu::optimize("no-omit-frame-pointer")]] void gather() {
  static auto scratch = std::make_unique<StackScratch>();
  const NativeWalk walk = walk_native(caller_here(), *scratch);
  for (std::size_t i = StackMemo::kEnd - walk.count; i < StackMemo::kEnd; ++i)
    g_addresses.insert(scratch->memo.frame(i).ip);
}

void gather_in(Step step) {
  std::mt19937 random(5);
  g_gather_now = true;
  step(random, 0);
  g_gather_now = false;
}

// A chain that does not end where its stack does, with any RBP: no read beyond the stack.
TEST_F(Unwind, SurvivesStacksThatEndInNonsense) {
  for (const Step kind : kSteps) gather_in(kind);
  ASSERT_GT(g_addresses.size(), std::size(kSteps));
  on_both_kinds_of_threads([] {
    const FencedPages pages;
    auto scratch = std::make_unique<StackScratch>();
    std::mt19937_64 random(6);
    std::uint64_t stopped = 0;
    for (const std::uint64_t filling : {std::uint64_t{0}, ~std::uint64_t{7}, pages.end() - 64}) {
      for (std::uint64_t at = pages.start(); at < pages.end(); at += 8) {
        const auto address = std::next(g_addresses.begin(), static_cast<long>(random() % g_addresses.size()));
        *reinterpret_cast<std::uint64_t*>(at) = random() % 4 == 0 ? filling : *address;
      }
      for (const std::uint64_t ip : g_addresses) {
        for (const std::uint64_t bp : {std::uint64_t{0}, std::uint64_t{8}, std::uint64_t{16}, ~std::uint64_t{7},
                                       pages.end() - 8, pages.end(), pages.start(), random()}) {
          for (const std::uint64_t from_end : {0, 8, 16, 64, 1024, 8192}) {
            const NativeWalk walk = walk_native({.ip = ip, .sp = pages.end() - from_end, .bp = bp}, *scratch);
            ASSERT_GE(walk.count, 1);
            const std::size_t first = StackMemo::kEnd - walk.count;
            ASSERT_EQ(scratch->memo.frame(first).ip, ip);
            for (std::size_t i = first; i < StackMemo::kEnd; ++i) ASSERT_LE(scratch->memo.frame(i).sp, pages.end());
            stopped += walk.incomplete ? 1 : 0;
          }
        }
      }
    }
    EXPECT_GT(stopped, 100U);
  });
}

TEST_F(Unwind, CutsDeepRecursionOff) {
  recurse(100);
  recurse(10'000);
}

// A cut-off stack may be met again at the same depth and no other.
TEST_F(Unwind, MeetsCutOffStacksOnlyAtTheirDepth) {
  for (const int depth : {230, 240, 250, 260, 300, 300, 301, 299, 300, 250, 400, 400, 230})
    for (int round = 0; round < 3; ++round) recurse(depth);
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) recurse(200 + static_cast<int>(random() % 100));
}

}  // namespace
}  // namespace whyrss::shim
