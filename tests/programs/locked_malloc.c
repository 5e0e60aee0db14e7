/* A program that defines malloc itself, over a heap that grows by small mappings under a plain lock: whoever calls its
 * malloc from inside of it, as from an mmap that is not the kernel's own, would wait for ever. It says so and ends. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HEADER_BYTES = 16, STEP_BYTES = 1 << 20 };
static _Atomic(pid_t) lock_owner; /* thread id */
static char* free_start;
static size_t free_bytes;

static void fail(const char* what) {
  write(2, what, strlen(what));
  _exit(90);
}

static void lock(void) {
  pid_t own = gettid(), nobody = 0;
  while (!atomic_compare_exchange_weak(&lock_owner, &nobody, own)) {
    if (nobody == own) fail("malloc was called from inside of malloc\n");
    nobody = 0;
  }
}

static void unlock(void) { atomic_store(&lock_owner, 0); }

static void* take(size_t alignment, size_t size) {
  if (alignment < HEADER_BYTES) alignment = HEADER_BYTES;
  size = (size + 15) & ~(size_t)15;
  size_t room = size + alignment + HEADER_BYTES;
  lock();
  if (room > free_bytes) {
    size_t step = room > STEP_BYTES ? (room + 4095) & ~(size_t)4095 : STEP_BYTES;
    void* made = mmap(NULL, step, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) fail("mmap failed in malloc\n");
    if (mprotect(made, step, PROT_READ | PROT_WRITE) != 0) fail("mprotect failed in malloc\n");
    if (madvise(made, step, MADV_DONTDUMP) != 0) fail("madvise failed in malloc\n");
    free_start = made;
    free_bytes = step;
  }
  uintptr_t block = ((uintptr_t)free_start + HEADER_BYTES + alignment - 1) & ~(alignment - 1);
  ((size_t*)block)[-1] = size;
  free_start += room;
  free_bytes -= room;
  unlock();
  return (void*)block;
}

void* malloc(size_t size) { return take(HEADER_BYTES, size); }
void* memalign(size_t alignment, size_t size) { return take(alignment, size); }
void* aligned_alloc(size_t alignment, size_t size) { return take(alignment, size); }
void* calloc(size_t count, size_t size) { return take(HEADER_BYTES, count * size); /* never used before: zero */ }
size_t malloc_usable_size(void* block) { return block == NULL ? 0 : ((size_t*)block)[-1]; }
void free(void* block) {
  (void)block;
  lock();
  unlock();
}

int posix_memalign(void** block, size_t alignment, size_t size) {
  *block = take(alignment, size);
  return 0;
}

void* realloc(void* block, size_t size) {
  void* moved = take(HEADER_BYTES, size);
  size_t old = malloc_usable_size(block);
  if (block != NULL) memcpy(moved, block, old < size ? old : size);
  return moved;
}

/* Before every library's constructor, so that the first calls come before anything is looked up. */
static void begin(void) { free(malloc(3 << 20)); }
__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = begin;

static void* work(void* sum) {
  for (int i = 1; i <= 2000; ++i) {
    char* block = malloc((size_t)i * 7);
    block[0] = block[i * 7 - 1] = 1;
    *(size_t*)sum += malloc_usable_size(block);
    free(block);
  }
  return NULL;
}

int main(void) {
  size_t sums[4] = {0};
  pthread_t threads[4];
  pthread_key_t key;
  for (int i = 0; i < 40; ++i) pthread_key_create(&key, NULL);
  for (int i = 0; i < 4; ++i) pthread_create(&threads[i], NULL, work, &sums[i]);
  for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
  printf("%zu %zu %zu %zu\n", sums[0], sums[1], sums[2], sums[3]);
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    size_t sum = 0;
    work(&sum);
    printf("child %zu\n", sum);
    exit(3);
  }
  int status = 0;
  waitpid(child, &status, 0);
  char* large = calloc(8, 4 << 20);
  memset(large, 1, 32 << 20);
  printf("ended %d, %d\n", WEXITSTATUS(status), large[(32 << 20) - 1]);
  return 7;
}
