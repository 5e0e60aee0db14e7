// Alternate signal stacks, as programs and runtimes make them, and page faults afterwards: signal_stacks KIND
//   small     8 KiB in a thread, as Rust's threads have
//   tiny      2 KiB (MINSIGSTKSZ), too small for a signal beside which anything else happens; in fork children
//   unmapped  given back with munmap, still set; moved: by mremap; closed: by mprotect; covered: by mmap(MAP_FIXED)
//   freed     given back with free, whose memory then serves again; enlarged: with realloc
//   frame     an array of a function that has returned
//   chain     children by vfork which vfork again, their parent's stack unmapped
// Prints "touched N" for its pages, and what came of the memory. SIGUSR1 has a handler on an alternate stack, sent
// before and after where the stack is still there.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kStackBytes = 8192, kTinyBytes = 2048, kPages = 300, kPage = 4096, kChildren = 20 };

static void set_stack(void* memory, size_t size_bytes) {
  const stack_t stack = {.ss_sp = memory, .ss_size = size_bytes};
  if (sigaltstack(&stack, NULL) != 0) abort();
}

static void* map_stack(void) {
  void* memory = mmap(NULL, 2 * kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) abort();
  set_stack(memory, 2 * kStackBytes);
  return memory;
}

__attribute__((noinline)) static int touch_pages(void) {
  unsigned char* pages = mmap(NULL, (size_t)kPages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) abort();
  for (int i = 0; i < kPages; ++i) pages[(size_t)i * kPage] = 1;
  int touched = 0;
  for (int i = 0; i < kPages; ++i) touched += pages[(size_t)i * kPage];
  return touched;
}

static volatile sig_atomic_t g_handled;

static void on_signal(int number) {
  (void)number;
  ++g_handled;
}

__attribute__((noinline)) static int touch_deeply(int depth) {
  volatile char frame[64] = {0};
  return depth == 0 ? touch_pages() : touch_deeply(depth - 1) + frame[0];
}

static void* in_thread(void* unused) {
  (void)unused;
  void* memory = malloc(kStackBytes);
  set_stack(memory, kStackBytes);
  raise(SIGUSR1);
  const int touched = touch_deeply(5);
  raise(SIGUSR1);
  printf("touched %d, handled %d\n", touched, (int)g_handled);
  const stack_t none = {.ss_flags = SS_DISABLE};
  sigaltstack(&none, NULL);
  free(memory);
  return NULL;
}

// Each child takes its own faults around the call.
static void tiny(void) {
  int unharmed = 0;
  for (int i = 0; i < kChildren; ++i) {
    const pid_t pid = fork();
    if (pid == 0) {
      const stack_t stack = {.ss_sp = malloc(kTinyBytes), .ss_size = kTinyBytes};
      memset(stack.ss_sp, 0, kTinyBytes);
      sigaltstack(&stack, NULL);  // some processors' registers need more: then it fails
      _exit(touch_pages() == kPages ? 0 : 1);
    }
    int status = -1;
    if (pid < 0 || waitpid(pid, &status, 0) != pid) abort();
    unharmed += status == 0;
  }
  printf("touched %d\n", unharmed * kPages);
}

static int is_filled(const unsigned char* memory, size_t size_bytes, unsigned char with) {
  for (size_t i = 0; i < size_bytes; ++i)
    if (memory[i] != with) return 0;
  return 1;
}

static void freed(int enlarge) {
  unsigned char* memory = malloc(2 * kStackBytes);
  set_stack(memory, 2 * kStackBytes);
  if (enlarge)
    memory = realloc(memory, 2 * kStackBytes + 4096);
  else
    free(memory);
  unsigned char* again = malloc(2 * kStackBytes);
  memset(again, 0x5a, 2 * kStackBytes);
  if (enlarge) memset(memory, 0x5a, 2 * kStackBytes + 4096);
  printf("touched %d\n", touch_pages());
  printf("kept %d\n",
         is_filled(again, 2 * kStackBytes, 0x5a) && (!enlarge || is_filled(memory, 2 * kStackBytes + 4096, 0x5a)));
}

__attribute__((noinline)) static void set_stack_in_frame(void) {
  char frame[2 * kStackBytes];
  memset(frame, 0, sizeof frame);
  set_stack(frame, sizeof frame);
}

// Where that array was.
__attribute__((noinline)) static int touch_with_large_frame(void) {
  unsigned char frame[3 * kStackBytes];
  memset(frame, 0x5a, sizeof frame);
  __asm__ volatile("" ::"r"(frame) : "memory");
  printf("touched %d\n", touch_pages());
  return is_filled(frame, sizeof frame, 0x5a);
}

// Each child runs in the memory of all before it, and has children of its own.
__attribute__((noinline)) static void vfork_deeper(int depth) {
  const pid_t pid = vfork();
  if (pid == 0) {
    if (depth > 0) vfork_deeper(depth - 1);
    touch_pages();
    _exit(0);
  }
  if (pid < 0 || waitpid(pid, NULL, 0) != pid) abort();
}

static void chain(void) {
  void* memory = map_stack();
  const pid_t first = fork();
  if (first == 0) {
    vfork_deeper(40);
    printf("touched %d\n", touch_pages());
    fflush(stdout);
    _exit(0);
  }
  int status = -1;
  if (first < 0 || waitpid(first, &status, 0) != first) abort();
  vfork_deeper(10);
  munmap(memory, 2 * kStackBytes);
  vfork_deeper(10);
  printf("touched %d, child %d\n", touch_pages(), status);
}

int main(int word_count, char** words) {
  if (word_count != 2) return 2;
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_signal;
  action.sa_flags = SA_ONSTACK;
  sigaction(SIGUSR1, &action, NULL);
  const char* kind = words[1];
  if (strcmp(kind, "small") == 0) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, in_thread, NULL) != 0) abort();
    pthread_join(thread, NULL);
    return 0;
  }
  if (strcmp(kind, "freed") == 0 || strcmp(kind, "enlarged") == 0) {
    freed(strcmp(kind, "enlarged") == 0);
    return 0;
  }
  if (strcmp(kind, "frame") == 0) {
    set_stack_in_frame();
    printf("kept %d\n", touch_with_large_frame());
    return 0;
  }
  if (strcmp(kind, "chain") == 0) {
    chain();
    return 0;
  }
  if (strcmp(kind, "tiny") == 0) {
    tiny();
    return 0;
  }
  void* memory = map_stack();
  raise(SIGUSR1);
  int touched = touch_pages();
  if (strcmp(kind, "unmapped") == 0) munmap(memory, 2 * kStackBytes);
  if (strcmp(kind, "unmapped-by-syscall") == 0) syscall(SYS_munmap, memory, 2 * kStackBytes);
  if (strcmp(kind, "moved") == 0) {
    void* elsewhere = mmap(NULL, 2 * kStackBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mremap(memory, 2 * kStackBytes, 2 * kStackBytes, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere) == MAP_FAILED)
      abort();
  }
  if (strcmp(kind, "closed") == 0) mprotect(memory, 2 * kStackBytes, PROT_NONE);
  if (strcmp(kind, "covered") == 0)
    mmap(memory, 2 * kStackBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  touched += touch_pages();
  // Masks come and go: that does not make it a stack again.
  sigset_t traps;
  sigemptyset(&traps);
  sigaddset(&traps, SIGTRAP);
  sigprocmask(SIG_BLOCK, &traps, NULL);
  sigprocmask(SIG_UNBLOCK, &traps, NULL);
  touched += touch_pages();
  map_stack();
  raise(SIGUSR1);
  touched += touch_pages();
  printf("touched %d, handled %d\n", touched, (int)g_handled);
  return 0;
}
