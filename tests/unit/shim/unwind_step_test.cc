// The shim's unwinder where a signal stopped the program, against libunwind: at every single instruction of
// code with all kinds of frames, the middle of prologues and epilogues, PLT stubs, the loader's lazy binding
// and the vdso included. The memo of the last instruction's stack is in use; a plain walk must agree.
#define UNW_LOCAL_ONLY
#include <alloca.h>
#include <gtest/gtest.h>
#include <libunwind.h>
#include <link.h>
#include <search.h>
#include <time.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>

#include "shim/events/own_memory_events.h"
#include "shim/observe/observe.h"
#include "shim/stacks/stack_scratch.h"
#include "shim/stacks/unwind_walk.h"

namespace whyrss::shim {

// The shim reports its tables to the trace; here there is none.
void report_own_memory(ThreadState& /*thread*/, const void* /*memory*/, std::size_t /*size_bytes*/) noexcept {}

namespace {

constexpr greg_t kTrapFlag = 0x100;

// No assertions in the handler: the code that is stepped through may be anywhere in malloc.
struct Stepped {
  std::uint64_t stacks = 0;      // compared and equal
  std::uint64_t incomplete = 0;  // of these: ended early, and not in the loader
  std::uint64_t in_foreign = 0;  // of these: stopped outside of this program
  std::uint64_t unequal = 0;
  std::uint64_t unequal_ip = 0;   // of the first one: where it was stopped,
  std::size_t unequal_frame = 0;  // and which frame differs
};
Stepped g_stepped;
volatile bool g_stop = false;
StackScratch* g_warm;
StackScratch* g_cold;
LoadedImage g_program, g_loader;

bool holds(const LoadedImage& image, std::uint64_t address) { return address >= image.start && address < image.end; }

// What libunwind says: the stopped instruction + 1, then return addresses, + 1 again behind a signal frame.
std::size_t expected_addresses(ucontext_t* context, std::array<std::uint64_t, StackMemo::kEnd>& addresses) {
  constexpr unsigned char kTrampoline[]{0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
  unw_cursor_t cursor;
  unw_init_local2(&cursor, context, UNW_INIT_SIGNAL_FRAME);
  std::size_t count = 0;
  bool interrupted = true;
  do {
    unw_word_t ip = 0;
    unw_get_reg(&cursor, UNW_REG_IP, &ip);
    if (ip == 0) break;
    addresses[count++] = ip + (interrupted ? 1 : 0);
    interrupted = std::memcmp(reinterpret_cast<const void*>(ip), kTrampoline, sizeof kTrampoline) == 0;
  } while (count < addresses.size() && unw_step(&cursor) > 0);
  return count;
}

void compare(ucontext_t* context) {
  const auto* registers = context->uc_mcontext.gregs;
  const Caller caller{.ip = static_cast<std::uint64_t>(registers[REG_RIP]),
                      .sp = static_cast<std::uint64_t>(registers[REG_RSP]),
                      .bp = static_cast<std::uint64_t>(registers[REG_RBP]),
                      .interrupted = true};
  const NativeWalk walk = walk_native(caller, *g_warm);
  g_cold->memo = {};
  const NativeWalk plain = walk_native(caller, *g_cold);
  static std::array<std::uint64_t, StackMemo::kEnd> expected;
  const std::size_t count = expected_addresses(context, expected);

  const std::size_t first = StackMemo::kEnd - walk.count;
  std::size_t same = 0;
  while (same < walk.count && same < count && g_warm->memo.frame(first + same).ip == expected[same]) ++same;
  const bool memo_agrees = plain.count == walk.count && plain.incomplete == walk.incomplete &&
                           g_warm->memo.hash(first) == g_cold->memo.hash(first);
  // A few frames are found by RBX or R10, which walks do not follow: the loader's trampolines for lazy binding,
  // and the first instructions of a function that realigns its stack.
  const bool cut =
      walk.incomplete && same == walk.count && find_unwind_rule(expected[same - 1] - 1).kind == RuleKind::complex;
  if (memo_agrees && (cut || (same == walk.count && same == count && !walk.incomplete))) {
    ++g_stepped.stacks;
    g_stepped.incomplete += cut && !holds(g_loader, expected[same - 1]) ? 1 : 0;
    g_stepped.in_foreign += holds(g_program, caller.ip) ? 0 : 1;
    return;
  }
  if (g_stepped.unequal++ != 0) return;
  g_stepped.unequal_ip = caller.ip;
  g_stepped.unequal_frame = same;
}

void on_step(int /*signal*/, siginfo_t* /*info*/, void* context_memory) {
  auto* context = static_cast<ucontext_t*>(context_memory);
  if (g_stop)
    context->uc_mcontext.gregs[REG_EFL] &= ~kTrapFlag;
  else
    compare(context);
}

void start_steps() {
  g_stop = false;
  asm volatile("lea -128(%%rsp), %%rsp; pushf; orq $0x100, (%%rsp); popf; lea 128(%%rsp), %%rsp" ::: "memory", "cc");
}
void stop_steps() { g_stop = true; }

void keep(const void* memory) { asm volatile("" : : "r"(memory) : "memory"); }

// Code to step through: a call chain with every kind of frame.
using Body = std::function<void()>;

[[gnu::noinline]] void with_alloca(std::size_t bytes, const Body& body) {
  void* memory = alloca(bytes);
  keep(memory);
  body();
  keep(memory);
}

[[gnu::noinline]] void realigned(const Body& body) {
  alignas(128) char memory[256];
  keep(memory);
  body();
  keep(memory);
}

[[gnu::noinline]] void realigned_with_alloca(const Body& body, std::size_t bytes, const char* a, const char* b,
                                             const char* c, const char* d, const char* e) {
  alignas(64) char fixed[64];
  void* memory = alloca(bytes);
  keep(fixed);
  keep(memory);
  body();
  for (const char* text : {a, b, c, d, e}) keep(text);  // arguments on the stack: a frame pointer of its own (DRAP)
}

[[gnu::noinline, gnu::optimize("no-omit-frame-pointer")]] void with_frame_pointer(const Body& body) {
  body();
  keep(&body);
}

const Body* g_sorted_body;

[[gnu::noinline]] void through_qsort(const Body& body) {
  int numbers[3] = {3, 1, 2};
  g_sorted_body = &body;
  qsort(numbers, std::size(numbers), sizeof(int), [](const void* a, const void* b) {
    (*g_sorted_body)();
    return *static_cast<const int*>(a) - *static_cast<const int*>(b);
  });
}

void in_handler(int /*signal*/) { keep(&g_stepped); }

[[gnu::noinline]] void all_kinds() {
  const Body leaf = [] { keep(&g_stepped); };
  const Body middle = [&] { with_frame_pointer([&] { with_alloca(100, leaf); }); };
  with_alloca(333, [&] { realigned(middle); });
  realigned([&] { realigned_with_alloca(leaf, 50, "a", "b", "c", "d", "e"); });
  through_qsort(middle);
  free(malloc(100'000));
}

class Steps : public testing::Test {
 protected:
  void SetUp() override {
    start_unwind_walk();
    g_program = find_image(reinterpret_cast<std::uint64_t>(&all_kinds));
    g_loader = find_image(_r_debug.r_ldbase + 0x1000);
    struct sigaction action {};
    action.sa_sigaction = on_step;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGTRAP, &action, nullptr);
    action.sa_handler = in_handler;
    action.sa_flags = 0;
    sigaction(SIGUSR1, &action, nullptr);
    warm_ = std::make_unique<StackScratch>();
    cold_ = std::make_unique<StackScratch>();
    g_warm = warm_.get();
    g_cold = cold_.get();
    g_stepped = {};
  }
  void TearDown() override { signal(SIGTRAP, SIG_DFL); }

  static void expect_all_equal(std::uint64_t at_least) {
    if (g_stepped.stacks + g_stepped.unequal == 0) GTEST_SKIP() << "this machine does not single-step";
    EXPECT_EQ(g_stepped.unequal, 0U) << "first at " << std::hex << g_stepped.unequal_ip - g_program.bias << ", frame "
                                     << std::dec << g_stepped.unequal_frame;
    EXPECT_GE(g_stepped.stacks, at_least);
    EXPECT_LE(g_stepped.incomplete, 8U) << "but for one realigned frame";
    RecordProperty("stacks", std::to_string(g_stepped.stacks));
  }

 private:
  std::unique_ptr<StackScratch> warm_, cold_;
};

TEST_F(Steps, EqualLibunwindAtEveryInstruction) {
  start_steps();
  all_kinds();
  stop_steps();
  expect_all_equal(500);
  EXPECT_GT(g_stepped.in_foreign, 100U) << "qsort, malloc and free are outside";
}

TEST_F(Steps, EqualLibunwindThroughLazyBinding) {
  // hcreate and hdestroy: of those that nothing here has called before.
  start_steps();
  const bool created = hcreate(10) != 0;
  if (created) hdestroy();
  stop_steps();
  EXPECT_TRUE(created);
  expect_all_equal(50);
}

TEST_F(Steps, EqualLibunwindInTheVdso) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  start_steps();
  clock_gettime(CLOCK_MONOTONIC, &now);
  clock_gettime(CLOCK_REALTIME, &now);
  stop_steps();
  expect_all_equal(20);
}

TEST_F(Steps, EqualLibunwindInSignalHandlersAndTheirReturn) {
  start_steps();
  raise(SIGUSR1);
  stop_steps();
  expect_all_equal(30);
}

TEST_F(Steps, EqualLibunwindInAThread) {
  std::thread([] {
    start_steps();
    all_kinds();
    stop_steps();
  }).join();
  expect_all_equal(500);
}

}  // namespace
}  // namespace whyrss::shim
