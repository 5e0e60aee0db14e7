// The guard that keeps the shim out of its own way: known as held, and as left behind, on every stack.
#include <gtest/gtest.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

#include <functional>

#include "shim/events/guard.h"

namespace whyrss::shim {
namespace {

constexpr std::size_t kStackBytes = 256 << 10;

ThreadState g_state;
bool g_taken_in_handler = false;
bool g_taken_after_jump = false;
sigjmp_buf g_out_of_handler;

[[gnu::noinline]] bool takes_guard() {
  const Busy busy(g_state);
  return busy.taken();
}

void try_in_handler(int) { g_taken_in_handler = takes_guard(); }

void leave_handler(int) { siglongjmp(g_out_of_handler, 1); }

// Raises the signal while the guard is held, deep enough that later frames of this stack lie above.
[[gnu::noinline]] void raise_while_busy() {
  volatile char room[4096];
  room[0] = 1;
  const Busy busy(g_state);
  raise(SIGUSR1);
  room[1] = room[0];
}

void jump_out_and_take() {
  if (sigsetjmp(g_out_of_handler, 1) == 0) raise_while_busy();
  g_taken_after_jump = takes_guard();
}

// All of the second case happens in the handler of another signal, on the alternate stack.
void jump_in_handler(int) { jump_out_and_take(); }

void handle(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_ONSTACK | SA_NODEFER;
  sigaction(signal, &action, nullptr);
}

// Runs `body` in a thread whose alternate signal stack lies right above its stack.
class Guard : public testing::Test {
 protected:
  void run(std::function<void()> body) {
    g_state = {};
    body_ = std::move(body);
    memory_ =
        static_cast<char*>(mmap(nullptr, 2 * kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(memory_, MAP_FAILED);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    ASSERT_EQ(pthread_attr_setstack(&attributes, memory_, kStackBytes), 0);
    pthread_t thread;
    ASSERT_EQ(pthread_create(&thread, &attributes, &Guard::start, this), 0);
    pthread_join(thread, nullptr);
    pthread_attr_destroy(&attributes);
    munmap(memory_, 2 * kStackBytes);
  }

 private:
  static void* start(void* self) {
    auto& guard = *static_cast<Guard*>(self);
    stack_t stack{};
    stack.ss_sp = guard.memory_ + kStackBytes;
    stack.ss_size = kStackBytes;
    EXPECT_EQ(sigaltstack(&stack, nullptr), 0);
    guard.body_();
    stack.ss_flags = SS_DISABLE;
    sigaltstack(&stack, nullptr);
    return nullptr;
  }

  std::function<void()> body_;
  char* memory_ = nullptr;
};

TEST_F(Guard, IsHeldForAHandlerOnAStackJustAbove) {
  handle(SIGUSR1, try_in_handler);
  g_taken_in_handler = true;
  run(raise_while_busy);
  EXPECT_FALSE(g_taken_in_handler);
  EXPECT_EQ(g_state.busy_sp, 0U);
}

TEST_F(Guard, IsNotHeldForAHandlerThatInterruptsNothingOfOurs) {
  handle(SIGUSR1, try_in_handler);
  g_taken_in_handler = false;
  run([] { raise(SIGUSR1); });
  EXPECT_TRUE(g_taken_in_handler);
}

TEST_F(Guard, IsGoneAfterAJumpOutOfTheHandler) {
  handle(SIGUSR1, leave_handler);
  g_taken_after_jump = false;
  run(jump_out_and_take);
  EXPECT_TRUE(g_taken_after_jump);
  EXPECT_EQ(g_state.busy_sp, 0U);
}

TEST_F(Guard, IsGoneAfterAJumpWithinTheAlternateStack) {
  handle(SIGUSR1, leave_handler);
  handle(SIGUSR2, jump_in_handler);
  g_taken_after_jump = false;
  run([] { raise(SIGUSR2); });
  EXPECT_TRUE(g_taken_after_jump);
  EXPECT_EQ(g_state.busy_sp, 0U);
}

}  // namespace
}  // namespace whyrss::shim
