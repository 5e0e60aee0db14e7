// allocate THREADS ROUNDS: each thread allocates, fills, checks and frees blocks of many sizes; blocks are freed by
// other threads too. Prints a sum that does not depend on the allocator. Ends with 1 if a block was not as it was left.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kSlots = 512, kMaxThreads = 16 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  unsigned char* bytes;
  size_t size;
  unsigned char mark;
} shared[kSlots];
static uint64_t total;
static int broken;

static uint32_t next_random(uint32_t* state) { return *state = *state * 1664525U + 1013904223U; }

static size_t size_of(uint32_t number) {
  if (number % 97 == 0) return 300000 + number % 100000;
  return number % 13 == 0 ? number % 20000 + 1 : number % 400 + 1;
}

static unsigned char* make_block(uint32_t number, size_t size) {
  void* block = NULL;
  switch (number % 5) {
    case 0:
      block = calloc(1, size);
      break;
    case 1:
      if (posix_memalign(&block, 64U << (number % 7), size) != 0) block = NULL;
      break;
    case 2:
      block = realloc(malloc(size / 2 + 1), size);
      break;
    default:
      block = malloc(size);
  }
  return block;
}

static void take_out(size_t slot) {
  unsigned char* bytes = shared[slot].bytes;
  if (bytes == NULL) return;
  if (bytes[0] != shared[slot].mark || bytes[shared[slot].size - 1] != shared[slot].mark) broken = 1;
  free(bytes);
  shared[slot].bytes = NULL;
}

static void* work(void* argument) {
  const long* job = argument;
  uint32_t state = (uint32_t)job[0] * 7919U + 1;
  uint64_t sum = 0;
  for (long round = 0; round < job[1]; ++round) {
    const uint32_t number = next_random(&state) >> 8;
    const size_t size = size_of(number), slot = number % kSlots;
    unsigned char* block = make_block(number, size);
    if (block == NULL) {
      broken = 1;
      break;
    }
    memset(block, (int)(number & 255), size);
    sum += size;
    pthread_mutex_lock(&lock);
    take_out(slot);
    shared[slot].bytes = block;
    shared[slot].size = size;
    shared[slot].mark = (unsigned char)(number & 255);
    pthread_mutex_unlock(&lock);
  }
  pthread_mutex_lock(&lock);
  total += sum;
  pthread_mutex_unlock(&lock);
  return NULL;
}

__attribute__((noinline)) static void finish_allocate(void) {
  for (size_t slot = 0; slot < kSlots; ++slot) take_out(slot);
  printf("allocated %llu bytes\n", (unsigned long long)total);
}

static void try_fork(void) {
  const pid_t child = fork();
  if (child == 0) {
    char* block = malloc(100000);
    memset(block, 1, 100000);
    free(block);
    _exit(4);
  }
  int status = 0;
  waitpid(child, &status, 0);
  printf("child %d\n", WEXITSTATUS(status));
}

int main(int count, char** words) {
  const long threads = count > 1 ? atol(words[1]) : 2, rounds = count > 2 ? atol(words[2]) : 10000;
  pthread_t handles[kMaxThreads];
  long jobs[kMaxThreads][2];
  if (threads < 1 || threads > kMaxThreads) return 2;
  for (long i = 0; i < threads; ++i) {
    jobs[i][0] = i;
    jobs[i][1] = rounds;
    if (pthread_create(&handles[i], NULL, work, jobs[i]) != 0) return 3;
  }
  for (long i = 0; i < threads; ++i) pthread_join(handles[i], NULL);
  void* map = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) return 3;
  memset(map, 7, 1 << 20);
  munmap(map, 1 << 20);
  try_fork();
  finish_allocate();
  return broken;
}
