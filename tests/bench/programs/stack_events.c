// The cost of events at a depth: nanoseconds for malloc and free of a block that is logged, from the same place
// ("hot") and from a path of five calls that changes each time ("fresh"). Best of many short slices.
//     stack_events DEPTH hot|fresh
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BLOCK_BYTES = 40000, SLICES = 40, PER_SLICE = 2000, FRESH = 5 };

static int is_fresh;

static double now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static __attribute__((noinline)) void allocate(void) {
  void* block = malloc(BLOCK_BYTES);
  __asm__ volatile("" : : "r"(block) : "memory");
  free(block);
}

// Four call sites a step: 1024 paths.
static __attribute__((noinline)) void wander(unsigned path, int calls) {
  if (calls == 0) {
    allocate();
  } else {
    switch (path & 3) {
      case 0:
        wander(path >> 2, calls - 1);
        __asm__ volatile("nop");
        break;
      case 1:
        wander(path >> 2, calls - 1);
        __asm__ volatile("nop;nop");
        break;
      case 2:
        wander(path >> 2, calls - 1);
        __asm__ volatile("nop;nop;nop");
        break;
      default:
        wander(path >> 2, calls - 1);
        __asm__ volatile("nop;nop;nop;nop");
        break;
    }
  }
  __asm__ volatile("" ::: "memory");
}

static void measure(void) {
  double best_ns = 1e30;
  unsigned random = 1;
  for (int slice = 0; slice < SLICES; ++slice) {
    const double start = now_ns();
    for (int i = 0; i < PER_SLICE; ++i) {
      random = random * 1664525 + 1013904223;
      if (is_fresh)
        wander(random >> 16, FRESH - 1);
      else
        allocate();
    }
    const double ns = (now_ns() - start) / PER_SLICE;
    if (ns < best_ns) best_ns = ns;
  }
  printf("%.1f\n", best_ns);
}

static __attribute__((noinline)) void descend(int depth) {
  if (depth > 0)
    descend(depth - 1);
  else
    measure();
  __asm__ volatile("" : : "r"(&depth) : "memory");
}

int main(int argument_count, char** arguments) {
  if (argument_count != 3) return 2;
  is_fresh = strcmp(arguments[2], "fresh") == 0;
  descend(atoi(arguments[1]) - (is_fresh ? FRESH : 0) - 6);
  return 0;
}
