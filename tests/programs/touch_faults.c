// Page faults whose number, place and code are known. Prints where; runs under the library and without.
//   touch_faults once | threads COUNT | spawn COUNT | storm ROUNDS | small_stacks | coroutines | alternate_stack
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum { kPage = 4096, kPages = 64 };
extern char** environ;

static char* map_pages(size_t count, int flags, int fd) {
  char* pages = mmap(NULL, count * kPage, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (pages == MAP_FAILED) abort();
  madvise(pages, count * kPage, MADV_NOHUGEPAGE);
  return pages;
}

#define TOUCHING(name)                                                           \
  __attribute__((noinline, noclone)) static void name(char* pages, int count) {  \
    for (int i = 0; i < count; ++i) ((volatile char*)pages)[i * kPage + 24] = 1; \
    __asm__ volatile("");                                                        \
  }
TOUCHING(first_touch)
TOUCHING(copy_of_file)
TOUCHING(copy_in_child)
TOUCHING(copy_in_parent)
TOUCHING(touch_in_thread)

__attribute__((noinline, noclone)) static int read_file_pages(const char* pages, int count) {
  int sum = 0;
  for (int i = 0; i < count; ++i) sum += ((const volatile char*)pages)[i * kPage + 24];
  return sum;
}

static void say(const char* name, const char* pages) { printf("%s %#lx\n", name, (unsigned long)pages); }

static int once(void) {
  char* fresh = map_pages(kPages, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  first_touch(fresh, kPages);

  char name[] = "touch_faults_XXXXXX";
  const int fd = mkstemp(name);
  unlink(name);
  if (fd < 0 || ftruncate(fd, kPages * kPage) != 0) return 1;
  char* shared = map_pages(kPages, MAP_SHARED, fd);
  char* copied = map_pages(kPages, MAP_PRIVATE, fd);
  const int sum = read_file_pages(shared, kPages);
  copy_of_file(copied, kPages);

  say("first_touch", fresh);
  say("read_file_pages", shared);
  say("copy_of_file", copied);
  printf("parent %d\n", getpid());
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    copy_in_child(fresh, kPages / 2);
    printf("child %d\n", getpid());
    fflush(stdout);
    _exit(0);
  }
  // The second half is still shared with a child that waits for nothing: copied here or in nobody.
  copy_in_parent(fresh + kPages / 2 * kPage, kPages / 2);
  int status = 0;
  return waitpid(child, &status, 0) != child || status != 0 || sum != 0;
}

static char* g_pages;
static void* thread_of_ten(void* number) {
  touch_in_thread(g_pages + (uintptr_t)number * 10 * kPage, 10);
  return NULL;
}

static int threads(int count) {
  g_pages = map_pages((size_t)count * 10, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
  say("touch_in_thread", g_pages);
  for (int i = 0; i < count; ++i) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, thread_of_ten, (void*)(uintptr_t)i) != 0) return 1;
    pthread_join(thread, NULL);
  }
  return 0;
}

static int must_be_zero(int status, const char* what) {
  if (status == 0) return 0;
  printf("%s: status %d\n", what, status);
  return 1;
}

// Faults before, after and (in the vfork child) between.
static int spawn(int rounds) {
  static int count, i, bad;  // not in registers: vfork returns twice
  count = rounds;
  char* arguments[] = {"true", NULL};
  for (i = 0; i < count; ++i) {
    char* pages = map_pages(kPages, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    first_touch(pages, 8);
    int status = -1;
    pid_t pid = 0;
    if (posix_spawnp(&pid, "true", NULL, NULL, arguments, environ) != 0) return 1;
    first_touch(pages + 8 * kPage, 8);
    waitpid(pid, &status, 0);
    bad += must_be_zero(status, "posix_spawn");
    bad += must_be_zero(system("true"), "system");
    pid = vfork();
    if (pid == 0) {
      first_touch(pages + 16 * kPage, 8);
      execvp("true", arguments);
      _exit(127);
    }
    waitpid(pid, &status, 0);
    bad += must_be_zero(status, "vfork");
    munmap(pages, kPages * kPage);
  }
  return bad != 0;
}

static volatile sig_atomic_t g_ticks;
static void tick(int signal) {
  (void)signal;
  ++g_ticks;
  char* pages = mmap(NULL, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return;
  pages[0] = pages[kPage] = 1;
  munmap(pages, 2 * kPage);
}

__attribute__((noinline)) static void deeper(char* pages, int depth) {
  volatile char frame[96];
  frame[0] = (char)depth;
  if (depth > 0)
    deeper(pages, depth - 1);
  else
    first_touch(pages, kPages);
  frame[1] = frame[0];
}

static int g_rounds;
static void* storm_thread(void* nothing) {
  (void)nothing;
  char* pages = map_pages(kPages, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  for (int round = 0; round < g_rounds; ++round) {
    deeper(pages, round % 40);
    void* block = malloc(40000);
    memset(block, 1, 40000);
    free(block);
    madvise(pages, kPages * kPage, MADV_DONTNEED);
  }
  return NULL;
}

static int storm(int rounds) {
  g_rounds = rounds;
  struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
  sigaction(SIGPROF, &action, NULL);
  const struct itimerval often = {{0, 1000}, {0, 1000}};
  setitimer(ITIMER_PROF, &often, NULL);
  pthread_t other[3];
  for (int i = 0; i < 3; ++i) pthread_create(&other[i], NULL, storm_thread, NULL);
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      storm_thread(NULL);
      _exit(0);
    }
    int status = 0;
    while (waitpid(child, &status, 0) != child) {
    }
    if (status != 0) {
      printf("child: status %d\n", status);
      return 1;
    }
  }
  for (int i = 0; i < 3; ++i) pthread_join(other[i], NULL);
  return 0;
}

// Walks down to the last half KiB of the stack, page by page: a signal frame has no room there.
__attribute__((noinline, noclone)) static void use_stack(char* low, char* pages) {
  volatile char frame[256];
  frame[0] = 1;
  if ((char*)frame - low > 1024)
    use_stack(low, pages);
  else
    first_touch(pages, kPages);
  frame[1] = frame[0];
}

static void* on_small_stack(void* low) {
  char* pages = map_pages(kPages, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  use_stack(low, pages);
  munmap(pages, kPages * kPage);
  return NULL;
}

static int small_stacks(void) {
  for (int i = 0; i < 50; ++i) {
    // The thread's stack lies between two canaries.
    enum { kStack = 32 * 1024 };
    char* memory = map_pages(kStack / kPage + 2, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    memset(memory, 0x5a, kPage);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, memory + kPage, kStack);
    pthread_t thread;
    if (pthread_create(&thread, &attributes, on_small_stack, memory + kPage) != 0) return 1;
    pthread_join(thread, NULL);
    for (int at = 0; at < kPage; ++at)
      if (memory[at] != 0x5a) {
        printf("a byte below the stack has changed: %d\n", at - kPage);
        return 1;
      }
    munmap(memory, kStack + 2 * kPage);
  }
  return 0;
}

static ucontext_t g_main, g_routine;
static char* g_low;
static void routine(void) {
  char* pages = map_pages(kPages, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  use_stack(g_low, pages);
  swapcontext(&g_routine, &g_main);
  madvise(pages, kPages * kPage, MADV_DONTNEED);
  use_stack(g_low, pages);
  munmap(pages, kPages * kPage);
}

static int coroutines(void) {
  for (int i = 0; i < 50; ++i) {
    enum { kStack = 16 * 1024 };
    char* memory = malloc(kStack + 4096);
    memset(memory, 0x5a, 4096);
    g_low = memory + 4096;
    getcontext(&g_routine);
    g_routine.uc_stack.ss_sp = g_low;
    g_routine.uc_stack.ss_size = kStack;
    g_routine.uc_link = &g_main;
    makecontext(&g_routine, routine, 0);
    swapcontext(&g_main, &g_routine);
    swapcontext(&g_main, &g_routine);
    for (int at = 0; at < 4096; ++at)
      if (memory[at] != 0x5a) {
        printf("a byte below the coroutine's stack has changed: %d\n", at - 4096);
        return 1;
      }
    free(memory);
  }
  return 0;
}

static char* g_handler_pages;
static void touch_in_handler(int signal) {
  (void)signal;
  first_touch(g_handler_pages, kPages);
}

// As small as the kernel allows: one signal frame and little more.
static int alternate_stack(void) {
  unsigned long size = getauxval(51);  // AT_MINSIGSTKSZ
  if (size < 2048) size = 2048;
  size += 1024;
  char* memory = map_pages(8, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  mprotect(memory, kPage, PROT_NONE);
  const stack_t stack = {.ss_sp = memory + kPage, .ss_size = size, .ss_flags = 0};
  stack_t before, after;
  if (sigaltstack(&stack, &before) != 0) return 1;
  sigaltstack(NULL, &after);
  printf("before %d, then %d %d\n", before.ss_flags, after.ss_flags, after.ss_size == size);
  struct sigaction action = {.sa_handler = touch_in_handler, .sa_flags = SA_ONSTACK}, reported;
  sigaction(SIGUSR1, &action, NULL);
  sigaction(SIGUSR1, NULL, &reported);
  printf("mask %d flags %#x\n", sigismember(&reported.sa_mask, SIGTRAP), (unsigned)reported.sa_flags);
  for (int i = 0; i < 50; ++i) {
    g_handler_pages = map_pages(kPages, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    first_touch(g_handler_pages, kPages);
    madvise(g_handler_pages, kPages * kPage, MADV_DONTNEED);
    raise(SIGUSR1);
    munmap(g_handler_pages, kPages * kPage);
  }
  const stack_t none = {.ss_flags = SS_DISABLE};
  if (sigaltstack(&none, &before) != 0) return 1;
  sigaltstack(NULL, &after);
  printf("disabled: %d -> %d %zu\n", before.ss_flags, after.ss_flags, after.ss_size);
  return 0;
}

int main(int argument_count, char** arguments) {
  const char* what = argument_count > 1 ? arguments[1] : "";
  const int count = argument_count > 2 ? atoi(arguments[2]) : 0;
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (strcmp(what, "once") == 0) return once();
  if (strcmp(what, "threads") == 0) return threads(count);
  if (strcmp(what, "spawn") == 0) return spawn(count);
  if (strcmp(what, "storm") == 0) return storm(count);
  if (strcmp(what, "small_stacks") == 0) return small_stacks();
  if (strcmp(what, "coroutines") == 0) return coroutines();
  if (strcmp(what, "alternate_stack") == 0) return alternate_stack();
  return 2;
}
