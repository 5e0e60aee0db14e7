// Whether a thread waits within a library: threads that wait in every way, behind a frame of the library and without.
#include "shim/stacks/waiting_call.h"

#include <alloca.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "shim/events/caller.h"
#include "shim/events/own_memory_events.h"
#include "shim/observe/observe.h"
#include "shim/stacks/python_frames.h"
#include "shim/stacks/stack_scratch.h"
#include "shim/stacks/unwind_walk.h"

namespace whyrss::shim {

// The shim reports its tables to the trace; here there is none. Nor is there Python.
void report_own_memory(ThreadState& /*thread*/, const void* /*memory*/, std::size_t /*size_bytes*/) noexcept {}
EvalRange python_eval_range() noexcept { return {}; }

namespace {

using Wait = void (*)();
using CallThroughFrame = void (*)(void (*callback)(void*), void* argument);

CallThroughFrame library_call() {
  static const auto function = reinterpret_cast<CallThroughFrame>(
      dlsym(dlopen(WHYRSS_SMALL_FRAME_PLUGIN, RTLD_NOW | RTLD_LOCAL), "call_through_frame"));
  return function;
}

StackLibraries libraries_here() {
  const auto scratch = std::make_unique<StackScratch>();
  walk_native(caller_here(), *scratch);
  StackLibraries libraries;
  libraries.take(scratch->memo);
  return libraries;
}

const StackLibraries& library() {
  static const StackLibraries libraries = [] {
    start_unwind_walk();
    StackLibraries found;
    library_call()([](void* into) { *static_cast<StackLibraries*>(into) = libraries_here(); }, &found);
    return found;
  }();
  return libraries;
}

void wait_for_condition() {
  std::mutex mutex;
  std::condition_variable changed;
  std::unique_lock lock(mutex);
  changed.wait(lock, [] { return false; });
}
void wait_for_semaphore() {
  sem_t semaphore;
  sem_init(&semaphore, 0, 0);
  sem_wait(&semaphore);
}
void sleep_long() { std::this_thread::sleep_for(std::chrono::hours(1)); }
void poll_nothing() { poll(nullptr, 0, -1); }
void wait_for_events() {
  epoll_event event;
  epoll_wait(epoll_create1(0), &event, 1, -1);
}
void read_pipe() {
  std::array<int, 2> ends{};
  char byte;
  if (pipe(ends.data()) == 0) static_cast<void>(read(ends[0], &byte, 1));
}
void receive() {
  std::array<int, 2> ends{};
  char byte;
  socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data());
  recv(ends[0], &byte, 1, 0);
}
void join_other() { std::thread(sleep_long).join(); }
// Frames that are found by RBP, which nobody further in has saved.
[[gnu::noinline, gnu::optimize("no-omit-frame-pointer")]] void wait_with_frame_pointer() {
  std::uint32_t word = 0;
  raw_syscall(SYS_futex, as_long(&word), FUTEX_WAIT_PRIVATE, 0, 0);
}
[[gnu::noinline, gnu::optimize("no-omit-frame-pointer")]] void wait_with_frame_pointers() {
  wait_with_frame_pointer();
  __asm__ volatile("");
}
[[gnu::noinline]] void wait_with_alloca() {
  volatile std::size_t size_bytes = 100;
  auto* memory = static_cast<volatile char*>(alloca(size_bytes));
  memory[0] = 0;
  poll(nullptr, 0, -1);
  memory[1] = 0;
}

struct WaitCase {
  const char* name;
  Wait wait;
};
constexpr std::array kWaits{WaitCase{"condition", wait_for_condition},
                            WaitCase{"semaphore", wait_for_semaphore},
                            WaitCase{"sleep", sleep_long},
                            WaitCase{"poll", poll_nothing},
                            WaitCase{"epoll", wait_for_events},
                            WaitCase{"pipe", read_pipe},
                            WaitCase{"socket", receive},
                            WaitCase{"join", join_other},
                            WaitCase{"frame_pointers", wait_with_frame_pointers},
                            WaitCase{"alloca", wait_with_alloca}};

void call_wait(void* wait) {
  reinterpret_cast<Wait>(wait)();
  __asm__ volatile("");  // no tail call
}

pthread_t started(void* (*run)(void*), Wait wait) {
  pthread_t thread = 0;
  EXPECT_EQ(pthread_create(&thread, nullptr, run, reinterpret_cast<void*>(wait)), 0);
  return thread;
}
pthread_t started_within(Wait wait) {
  return started(
      [](void* argument) -> void* {
        library_call()(call_wait, argument);
        return nullptr;
      },
      wait);
}
pthread_t started_without(Wait wait) {
  return started(
      [](void* argument) -> void* {
        call_wait(argument);
        return nullptr;
      },
      wait);
}

// Within 10 s: on its way there it may be blocked elsewhere.
bool comes_to(WaitsThere expected, pthread_t thread) {
  for (int i = 0; i < 10'000; ++i) {
    if (waits_in(library(), thread, getpid()) == expected) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

class WaitingCallTest : public testing::TestWithParam<WaitCase> {};

TEST_P(WaitingCallTest, IsFoundBehindAFrameOfTheLibraryOnly) {
  ASSERT_FALSE(library().empty());
  const pthread_t within = started_within(GetParam().wait), without = started_without(GetParam().wait);
  EXPECT_TRUE(comes_to(WaitsThere::yes, within));
  EXPECT_TRUE(comes_to(WaitsThere::no, without));
}

INSTANTIATE_TEST_SUITE_P(Waits, WaitingCallTest, testing::ValuesIn(kWaits),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(WaitsIn, OfAThreadThatRunsIsNotKnown) {
  static std::atomic<bool> stop{false};
  const pthread_t thread = started_within([] {
    while (!stop) {
    }
  });
  for (int i = 0; i < 100; ++i) EXPECT_EQ(waits_in(library(), thread, getpid()), WaitsThere::unknown);
  stop = true;
  pthread_join(thread, nullptr);
}

TEST(WaitsIn, WithoutALibraryIsNotKnown) {
  library();
  const StackLibraries none = libraries_here();
  EXPECT_TRUE(none.empty());  // only the program and what all share
  const pthread_t thread = started_within(sleep_long);
  EXPECT_TRUE(comes_to(WaitsThere::yes, thread));
  EXPECT_EQ(waits_in(none, thread, getpid()), WaitsThere::unknown);
}

// A stack may hold the address of a call into code that has gone, and another thread's is read at any moment: nothing
// of the code may be read then. What such a frame leads to is not known either.
TEST(WaitsIn, ReadsNoRulesThatADlcloseUnmaps) {
  library();
  std::atomic<bool> stop{false};
  std::atomic<int> loads{0};
  std::atomic<pthread_t> waiting{0};
  std::thread loader([&] {
    while (!stop) {
      void* const plugin = dlopen(WHYRSS_LARGE_FRAME_PLUGIN, RTLD_NOW | RTLD_LOCAL);
      const auto call = reinterpret_cast<CallThroughFrame>(dlsym(plugin, "call_through_frame"));
      waiting = pthread_self();
      call([](void*) { std::this_thread::sleep_for(std::chrono::microseconds(50)); }, nullptr);
      begin_code_removal();
      dlclose(plugin);
      end_code_removal(true);
      ++loads;
    }
  });
  while (waiting == 0) std::this_thread::yield();
  int known = 0;
  while (loads < 2000) known += waits_in(library(), waiting, getpid()) != WaitsThere::unknown ? 1 : 0;
  stop = true;
  loader.join();
  EXPECT_GT(known, 0);
}

TEST(CodeHold, MakesARemovalWaitAndIsNotHadMeanwhile) {
  {
    const CodeHold hold;
    ASSERT_TRUE(hold);
    const auto begun = std::chrono::steady_clock::now();
    begin_code_removal();  // gives up in the end: this thread holds
    EXPECT_GE(std::chrono::steady_clock::now() - begun, std::chrono::milliseconds(10));
  }
  EXPECT_FALSE(CodeHold());
  end_code_removal(true);
  EXPECT_TRUE(CodeHold());
}

}  // namespace
}  // namespace whyrss::shim
