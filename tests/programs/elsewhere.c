/* A library that calls back on a stack of its own, as greenlets and coroutine libraries do. */
#define _GNU_SOURCE
#include <stddef.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { kStackBytes = 1 << 20 };

struct Elsewhere {
  ucontext_t here, there;
  void (*call)(void);
};

static __thread struct Elsewhere* current;

static void run(void) { current->call(); }

/* 0 when `call` has returned; calls may nest. */
int run_elsewhere(void (*call)(void)) {
  struct Elsewhere elsewhere = {.call = call}, *outer = current;
  void* stack = mmap(NULL, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (stack == MAP_FAILED || getcontext(&elsewhere.there) != 0) return 1;
  elsewhere.there.uc_stack.ss_sp = stack;
  elsewhere.there.uc_stack.ss_size = kStackBytes;
  elsewhere.there.uc_link = &elsewhere.here;
  makecontext(&elsewhere.there, run, 0);
  current = &elsewhere;
  const int failed = swapcontext(&elsewhere.here, &elsewhere.there);
  current = outer;
  munmap(stack, kStackBytes);
  return failed;
}
