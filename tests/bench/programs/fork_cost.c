// fork_cost [MIB ROUNDS]: what a fork of a process with MIB of memory costs, and then the copy of a shared page in a
// child that has lived for a while. Prints "name value unit" lines: CPU time, the least of ROUNDS.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kPage = 4096, kCopied = 65536 };

static double cpu_ms(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static void keep_least(double* least, double value) {
  if (value < *least) *least = value;
}

int main(int argc, char** argv) {
  const size_t bytes = (size_t)(argc > 1 ? atoi(argv[1]) : 1024) << 20;
  const int rounds = argc > 2 ? atoi(argv[2]) : 10;
  char* memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  double* reported = mmap(NULL, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED || reported == MAP_FAILED) return 9;
  madvise(memory, bytes, MADV_NOHUGEPAGE);
  memset(memory, 1, bytes);
  const size_t copied = bytes / kPage < kCopied ? bytes / kPage : kCopied;
  double parent_ms = 1e9, child_ms = 1e9, copy_ns = 1e9;
  for (int round = 0; round < rounds; ++round) {
    const double before = cpu_ms(CLOCK_THREAD_CPUTIME_ID);
    const pid_t child = fork();
    if (child == 0) {
      reported[0] = cpu_ms(CLOCK_PROCESS_CPUTIME_ID);  // of its first instruction; the clock began with the process
      usleep(300000);
      const double start = cpu_ms(CLOCK_THREAD_CPUTIME_ID);
      for (size_t page = 0; page < copied; ++page) ((volatile char*)memory)[page * kPage] = 2;
      reported[1] = (cpu_ms(CLOCK_THREAD_CPUTIME_ID) - start) * 1e6 / (double)copied;
      _exit(0);
    }
    const double forked = cpu_ms(CLOCK_THREAD_CPUTIME_ID) - before;
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) return 8;
    keep_least(&parent_ms, forked);
    keep_least(&child_ms, forked + reported[0]);
    keep_least(&copy_ns, reported[1]);
  }
  printf("parent %.3f ms\nchild %.3f ms\ncopy %.0f ns\n", parent_ms, child_ms, copy_ns);
  return 0;
}
