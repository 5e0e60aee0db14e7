// The cost of malloc and free of a small block, 20 frames deep, from the same place ("same") or by a path of five calls
// that changes each time ("random"); in one thread or several. Prints the CPU nanoseconds of a pair in the best of
// many short slices of the first thread, and the wall nanoseconds of a pair over its whole run.
//     malloc_pairs THREADS same|random PAIRS
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DEPTH = 20, RANDOM = 5, PER_SLICE = 5000, MOST_THREADS = 64 };

struct worker {
  long slices;
  double best_cpu_ns, wall_ns;  // of a pair
};

static int is_random;

static double clock_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static __attribute__((noinline)) void allocate(unsigned random) {
  void* block = malloc(16 + random % 32 * 16);  // of more sizes by stacks heaptrack 1.4 dies
  __asm__ volatile("" : : "r"(block) : "memory");
  free(block);
}

// Four call sites a step: 1024 paths.
static __attribute__((noinline)) void wander(unsigned path, unsigned random, int calls) {
  if (calls == 0) {
    allocate(random);
  } else {
    switch (path & 3) {
      case 0:
        wander(path >> 2, random, calls - 1);
        __asm__ volatile("nop");
        break;
      case 1:
        wander(path >> 2, random, calls - 1);
        __asm__ volatile("nop;nop");
        break;
      case 2:
        wander(path >> 2, random, calls - 1);
        __asm__ volatile("nop;nop;nop");
        break;
      default:
        wander(path >> 2, random, calls - 1);
        __asm__ volatile("nop;nop;nop;nop");
        break;
    }
  }
  __asm__ volatile("" ::: "memory");
}

static __attribute__((noinline)) void measure(struct worker* worker) {
  unsigned random = 1;
  worker->best_cpu_ns = 1e30;
  const double start_ns = clock_ns(CLOCK_MONOTONIC);
  for (long slice = 0; slice < worker->slices; ++slice) {
    const double begin_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < PER_SLICE; ++i) {
      random = random * 1664525 + 1013904223;
      if (is_random)
        wander(random >> 16, random >> 8, RANDOM - 1);
      else
        allocate(random >> 8);
    }
    const double ns = (clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin_ns) / PER_SLICE;
    if (ns < worker->best_cpu_ns) worker->best_cpu_ns = ns;
  }
  worker->wall_ns = (clock_ns(CLOCK_MONOTONIC) - start_ns) / ((double)worker->slices * PER_SLICE);
}

static __attribute__((noinline)) void descend(int depth, struct worker* worker) {
  if (depth > 0)
    descend(depth - 1, worker);
  else
    measure(worker);
  __asm__ volatile("" : : "r"(&depth) : "memory");
}

// start_thread or main, descend..., measure, allocate, malloc; wander between the last two when random.
static void* work(void* worker) {
  descend(DEPTH - (is_random ? RANDOM : 0) - 5, worker);
  return NULL;
}

int main(int argument_count, char** arguments) {
  if (argument_count != 4) return 2;
  const int threads = atoi(arguments[1]);
  if (threads < 1 || threads > MOST_THREADS) return 2;
  is_random = strcmp(arguments[2], "random") == 0;
  struct worker workers[MOST_THREADS];
  pthread_t ids[MOST_THREADS];
  for (int i = 0; i < threads; ++i) workers[i].slices = atol(arguments[3]) / PER_SLICE;
  for (int i = 1; i < threads; ++i)
    if (pthread_create(&ids[i], NULL, work, &workers[i]) != 0) return 3;
  work(&workers[0]);
  for (int i = 1; i < threads; ++i) pthread_join(ids[i], NULL);
  printf("%.2f %.2f\n", workers[0].best_cpu_ns, workers[0].wall_ns);
  return 0;
}
