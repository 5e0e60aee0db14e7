/* stack_hazards WHAT [PLUGINS]: stacks that are switched, overflow, vanish or are interrupted, while blocks are made on
 * them. Prints only what is the same in every run. Every block of kBlock bytes is made by `descend`, below as many
 * frames of `descend` as `kDepth` says. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum { kBlock = 0xA000, kHandled = 0xE000, kDepth = 12, kCoroutines = 8, kStack = 128 * 1024, kRounds = 100 };

static __attribute__((noinline)) void* descend(int depth) {
  void* block = depth > 0 ? descend(depth - 1) : malloc(kBlock);
  __asm__ volatile("" : "+r"(block)); /* no tail call */
  return block;
}

static ucontext_t main_context, contexts[kCoroutines];
static void* stacks[kCoroutines];
static int made, ended;

static void coroutine(int number) {
  for (int round = 0; round < kRounds; ++round) {
    free(descend(kDepth - 1));
    ++made;
    swapcontext(&contexts[number], &main_context);
  }
  ++ended;
}

static void* run_coroutines(void* unused) {
  for (int round = 0; round < kRounds / 2; ++round)
    for (int i = 0; i < kCoroutines; ++i) swapcontext(&main_context, &contexts[i]);
  return unused;
}

/* Started on one thread, ended on another; then the same addresses serve as new stacks. */
static void start_coroutine(int i) {
  stacks[i] = mmap(stacks[i], kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (stacks[i] == MAP_FAILED || getcontext(&contexts[i]) != 0) abort();
  contexts[i].uc_stack.ss_sp = stacks[i];
  contexts[i].uc_stack.ss_size = kStack;
  contexts[i].uc_link = &main_context;
  makecontext(&contexts[i], (void (*)(void))coroutine, 1, i);
}

static int coroutines(void) {
  for (volatile int again = 0; again < 3; again = again + 1) {
    for (int i = 0; i < kCoroutines; ++i) start_coroutine(i);
    pthread_t thread;
    run_coroutines(NULL);
    if (pthread_create(&thread, NULL, run_coroutines, NULL) != 0 || pthread_join(thread, NULL) != 0) return 2;
    for (int i = 0; i < kCoroutines; ++i) swapcontext(&main_context, &contexts[i]); /* each runs to its end */
    for (int i = 0; i < kCoroutines; ++i) munmap(stacks[i], kStack);
  }
  printf("%d blocks, %d ended\n", made, ended);
  return 0;
}

static volatile sig_atomic_t signals;

static void handler(int number, siginfo_t* info, void* context) {
  (void)number, (void)info, (void)context;
  void* block = mmap(NULL, kHandled, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block != MAP_FAILED) munmap(block, kHandled);
  signals = signals + 1;
}

static void handle(int number, void (*action)(int, siginfo_t*, void*), int flags) {
  struct sigaction wanted = {.sa_sigaction = action, .sa_flags = SA_SIGINFO | flags};
  sigaction(number, &wanted, NULL);
}

static void tick(int timer, int every_us) {
  const struct itimerval every = {{0, every_us}, {0, every_us}};
  setitimer(timer, &every, NULL);
}

/* The program's own SIGTRAP and SIGPROF, on an alternate stack of its own. */
static int own_handlers(void) {
  stack_t alternate = {.ss_sp = mmap(NULL, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
                       .ss_size = kStack};
  sigaltstack(&alternate, NULL);
  handle(SIGPROF, handler, SA_RESTART | SA_ONSTACK);
  handle(SIGTRAP, handler, SA_RESTART);
  int traps = 0;
  for (int i = 0; i < 500; ++i) {
    const int before = signals;
    if (i % 2 == 0)
      raise(SIGTRAP);
    else
      __asm__ volatile("int3");
    traps += signals - before;
  }
  signals = 0;
  tick(ITIMER_PROF, 1000);
  int rounds = 0;
  for (; rounds < 2000 || signals < 100; ++rounds) {
    void* block = descend(kDepth - 1);
    for (int i = 0; i < 20; ++i) {
      memset(block, rounds + i, kBlock);
      __asm__ volatile("" : : "r"(block) : "memory"); /* the time that it takes is wanted */
    }
    free(block);
  }
  tick(ITIMER_PROF, 0);
  printf("%d traps\n", traps);
  return 0;
}

static sigjmp_buf back;
static volatile sig_atomic_t armed;

static void jump(int number, siginfo_t* info, void* context) {
  (void)number, (void)info, (void)context;
  signals = signals + 1;
  if (armed) siglongjmp(back, 1);
}

/* Leaves a handler by a jump, also out of the middle of a mapping call; afterwards all is as before. */
static int jumps(void) {
  char* place = mmap(NULL, kStack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  handle(SIGALRM, jump, 0);
  tick(ITIMER_REAL, 1000);
  volatile int rounds = 0;
  while (signals < 300) {
    if (sigsetjmp(back, 1) != 0) continue;
    armed = 1;
    for (int i = 0; i < 1000; ++i) {
      mmap(place, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
      memset(place, i, kStack); /* few calls a second: nothing may be lost however late the collector is */
    }
    armed = 0;
    rounds = rounds + 1;
  }
  armed = 0;
  tick(ITIMER_REAL, 0);
  /* The last jump may have come out of the library, which sees it at the next call from no deeper than that one. */
  mmap(place, kStack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  for (int i = 0; i < 100; ++i) free(descend(kDepth - 1));
  puts("jumped");
  return 0;
}

static volatile int endless = 1;

static __attribute__((noinline)) int fall(int depth) {
  volatile char room[256];
  room[depth % 256] = 1;
  if (depth % 64 == 0) free(malloc(kBlock));
  return endless ? fall(depth + 1) + room[0] : 0;
}

static int overflow(void) {
  const struct rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  return fall(0);
}

static void survive(int number, siginfo_t* info, void* context) {
  (void)info, (void)context;
  static const char text[] = "overflowed\n";
  _exit(number == SIGSEGV && write(STDOUT_FILENO, text, sizeof(text) - 1) > 0 ? 7 : 8);
}

/* The same in a program that takes the SIGSEGV itself. */
static int handled_overflow(void) {
  stack_t alternate = {.ss_sp = mmap(NULL, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
                       .ss_size = kStack};
  sigaltstack(&alternate, NULL);
  handle(SIGSEGV, survive, SA_ONSTACK);
  return overflow();
}

static void* use_plugin(void* path) {
  for (int round = 0; round < kRounds; ++round) {
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return NULL;
    void* (*allocate)(int) = (void* (*)(int))dlsym(library, "plugin_descend");
    free(allocate(kDepth - 1));
    dlclose(library);
  }
  return path;
}

/* Libraries with frames of different sizes come and go, at the same addresses by and by. */
static int plugins(char** paths) {
  pthread_t threads[8];
  int count = 0, well = 0;
  for (; paths[count] != NULL && count < 8; ++count) pthread_create(&threads[count], NULL, use_plugin, paths[count]);
  for (int i = 0; i < count; ++i) {
    void* result = NULL;
    pthread_join(threads[i], &result);
    well += result == paths[i];
  }
  for (int i = 0; i < count; ++i) well += use_plugin(paths[i]) == paths[i];
  printf("%d of %d\n", well, 2 * count);
  return 0;
}

static volatile int going = 1;

static void* allocate_on(void* unused) {
  while (going) {
    for (int i = 0; i < 16; ++i) free(descend(kDepth - 1));
    usleep(2000);
  }
  return unused;
}

static int forks(void) {
  pthread_t threads[3];
  for (int i = 0; i < 3; ++i) pthread_create(&threads[i], NULL, allocate_on, NULL);
  int well = 0;
  for (int i = 0; i < 100; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      free(descend(kDepth - 1));
      _exit(6);
    }
    int status = 0;
    waitpid(child, &status, 0);
    well += WIFEXITED(status) && WEXITSTATUS(status) == 6;
  }
  going = 0;
  for (int i = 0; i < 3; ++i) pthread_join(threads[i], NULL);
  printf("%d children\n", well);
  return 0;
}

int main(int count, char** arguments) {
  const char* what = count > 1 ? arguments[1] : "";
  if (strcmp(what, "coroutines") == 0) return coroutines();
  if (strcmp(what, "own_handlers") == 0) return own_handlers();
  if (strcmp(what, "jumps") == 0) return jumps();
  if (strcmp(what, "overflow") == 0) return overflow();
  if (strcmp(what, "handled_overflow") == 0) return handled_overflow();
  if (strcmp(what, "plugins") == 0) return plugins(arguments + 2);
  if (strcmp(what, "forks") == 0) return forks();
  return 64;
}
