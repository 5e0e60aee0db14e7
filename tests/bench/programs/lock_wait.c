// How long a thread that maps and unmaps a page waits for the process's memory lock, while another one makes memory
// resident at a steady pace: lock_wait MIB MIB_PER_S. Only waits that the kernel counts as such (RUSAGE_THREAD,
// ru_nvcsw), so that what other processes take of the processor does not count.
// Prints: the sum of them in ms, the longest in ms.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { kPage = 4096, kMiB = 1 << 20, kPauseNs = 20000 };

static atomic_bool g_done;
static double g_sum_ms, g_longest_ms;

static double now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static long waits(void) {
  struct rusage usage;
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

static void* map_and_unmap(void* unused) {
  (void)unused;
  while (!atomic_load(&g_done)) {
    const long before = waits();
    const double begin_ms = now_ms();
    const long page = syscall(SYS_mmap, 0L, (long)kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1L, 0L);
    syscall(SYS_munmap, page, (long)kPage);
    const double waited_ms = now_ms() - begin_ms;
    if (waits() != before) {
      g_sum_ms += waited_ms;
      if (waited_ms > g_longest_ms) g_longest_ms = waited_ms;
    }
    nanosleep(&(struct timespec){.tv_nsec = kPauseNs}, NULL);
  }
  return NULL;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const long mib = atol(argv[1]);
  const double ms_per_mib = 1e3 / atof(argv[2]);
  char* memory = mmap(NULL, (size_t)mib * kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  pthread_t thread;
  if (memory == MAP_FAILED || pthread_create(&thread, NULL, map_and_unmap, NULL) != 0) return 1;
  const double begin_ms = now_ms();
  for (long done = 0; done < mib; ++done) {
    memset(memory + done * kMiB, 1, kMiB);
    const double early_ms = begin_ms + (double)(done + 1) * ms_per_mib - now_ms();
    if (early_ms > 0) usleep((useconds_t)(early_ms * 1e3));
  }
  atomic_store(&g_done, 1);
  pthread_join(thread, NULL);
  printf("%.3f %.3f\n", g_sum_ms, g_longest_ms);
  return 0;
}
