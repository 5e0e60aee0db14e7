// Processes that share pages by forks, and do step by step what a script says. Runs with the library and without.
//   cow_script PAGES small|huge|any WAIT_MS STEP...
// A step is one of
//   0f1         process 0 forks process 1 (numbers grow)
//   1w100-200   process 1 writes pages 100 to 199
//   1s100-200   process 1 writes one page in 512 of them
//   1u100-200   process 1 unmaps pages 100 to 199
//   1c0-1024    process 1 has the kernel merge pages 0 to 1023 into 2 MiB pages of its own, as khugepaged does
//   1x          process 1 ends
//   0m          all wait, WAIT_MS at most, until the last page is marked (pagemap bit 57) in every process walked
//   0p300       all wait for 300 ms
// After each step every process takes a snapshot, in the order of their numbers, one alone at a time. Process 0 fills
// the pages before the first step; the last page is never written again. `huge` asks for 2 MiB pages, of which PAGES is
// a multiple, `any` leaves it to the system. Prints "process NUMBER PID", "huge KB" (smaps' AnonHugePages of the pages
// when they are filled), for each "m" "marked COUNT" of how many processes, and for each "c" "merged 1", or 0 where the
// kernel does not do it.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shim/whyrss.h"

enum { kPage = 4096, kMostProcesses = 32, kHugePages = 512, kCollapse = 25 };  // MADV_COLLAPSE, Linux 6.1

// Turns of all processes that live.
static struct {
  atomic_int live[kMostProcesses], arrived[kMostProcesses];  // arrived: at so many meetings
  atomic_int pids[kMostProcesses], marked;
} * g_shared;

static int g_self = 0, g_meetings = 0;
static long g_page_count = 0;
static char* g_pages;

static void sleep_ms(long ms) {
  const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
  nanosleep(&time, NULL);
}

static double now_s(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

// A snapshot that took less than it may take, 0.5 s at least, was served; later the first was.
static void walk(void) {
  double begun = 0;
  for (int turn = 0; turn < 4 && now_s() - begun >= 0.49; ++turn) {
    begun = now_s();
    WHYRSS_SNAPSHOT();
  }
}

// Returns when all that live have come here as often.
static void meet(void) {
  atomic_store(&g_shared->arrived[g_self], ++g_meetings);
  for (int i = 0; i < kMostProcesses; ++i)
    while (atomic_load(&g_shared->live[i]) != 0 && atomic_load(&g_shared->arrived[i]) < g_meetings) sleep_ms(1);
}

__attribute__((noinline)) static char* map_pages(const char* kind) {
  const size_t size = (size_t)g_page_count * kPage, align = (size_t)kHugePages * kPage;
  char* at = mmap(NULL, size + align, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); /* maps pages */
  if (at == MAP_FAILED) exit(9);
  char* aligned = (char*)(((uintptr_t)at + align - 1) / align * align);
  if (strcmp(kind, "any") != 0) madvise(aligned, size, strcmp(kind, "huge") == 0 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  return aligned;
}

__attribute__((noinline)) static void write_pages(long from, long to, long stride) {
  for (long i = from; i < to; i += stride) ((volatile char*)g_pages)[i * kPage + 24] = 2; /* writes pages */
  __asm__ volatile("");
}

static int is_marked(long page) {
  uint64_t entry = 0;
  const int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const off_t at = (off_t)(((uintptr_t)g_pages / kPage + (uintptr_t)page) * sizeof entry);
  const ssize_t got = pread(fd, &entry, sizeof entry, at);
  close(fd);
  return got == sizeof entry && (entry >> 57 & 1) != 0;
}

static void wait_for_marks(int wait_ms) {
  const long last = g_page_count - 1;
  atomic_store(&g_shared->marked, 0);
  meet();
  for (int waited = 0; waited < wait_ms && !is_marked(last); waited += 10) sleep_ms(10);
  atomic_fetch_add(&g_shared->marked, is_marked(last));
  meet();
  if (g_self == 0) printf("marked %d\n", atomic_load(&g_shared->marked));
}

static long huge_kb(void) {
  char line[512];
  unsigned long start = 0, end = 0;
  long sum = 0, kb = 0;
  FILE* smaps = fopen("/proc/self/smaps", "r");
  if (smaps == NULL) return 0;
  int inside = 0;
  while (fgets(line, sizeof line, smaps) != NULL) {
    if (sscanf(line, "%lx-%lx ", &start, &end) == 2) inside = start <= (uintptr_t)g_pages && (uintptr_t)g_pages < end;
    if (inside && sscanf(line, "AnonHugePages: %ld kB", &kb) == 1) sum += kb;
  }
  fclose(smaps);
  return sum;
}

// Its memory has gone: it is a zombie at most.
static void wait_for_end_of(int number) {
  char path[64], text[256];
  snprintf(path, sizeof path, "/proc/%d/stat", atomic_load(&g_shared->pids[number]));
  while (1) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    const ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    text[got > 0 ? got : 0] = '\0';
    const char* state = strrchr(text, ')');
    if (state == NULL || state[1] == '\0' || state[2] == 'Z' || state[2] == 'X') return;
    sleep_ms(1);
  }
}

static void fork_process(int number) {
  fflush(stdout);
  atomic_store(&g_shared->arrived[number], g_meetings);
  atomic_store(&g_shared->live[number], 1);
  const pid_t child = fork();
  if (child < 0) exit(9);
  if (child == 0) {
    g_self = number;
    atomic_store(&g_shared->pids[number], getpid());
    printf("process %d %d\n", number, getpid());
    fflush(stdout);
  }
}

static void leave(void) {
  fflush(stdout);
  atomic_store(&g_shared->live[g_self], 0);
  _exit(0);
}

static void play(const char* step, int wait_ms) {
  char* at = NULL;
  const int who = (int)strtol(step, &at, 10);
  const char what = *at;
  const long from = strtol(at + 1, &at, 10);
  const long to = *at == '-' ? strtol(at + 1, NULL, 10) : from;
  if (what == 'm') wait_for_marks(wait_ms);
  if (what == 'p') sleep_ms(from);
  if (what == 'x' && who != g_self) wait_for_end_of(who);
  if (who != g_self) return;
  if (what == 'f') fork_process((int)from);
  if (what == 'w') write_pages(from, to, 1);
  if (what == 's') write_pages(from, to, kHugePages);
  if (what == 'u') munmap(g_pages + from * kPage, (size_t)(to - from) * kPage);
  if (what == 'c') printf("merged %d\n", madvise(g_pages + from * kPage, (size_t)(to - from) * kPage, kCollapse) == 0);
  if (what == 'x') leave();
}

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  g_page_count = strtol(argv[1], NULL, 10);
  const int wait_ms = atoi(argv[3]);
  g_shared = mmap(NULL, sizeof *g_shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (g_shared == MAP_FAILED) return 9;
  atomic_store(&g_shared->live[0], 1);
  g_pages = map_pages(argv[2]);
  write_pages(0, g_page_count, 1);
  printf("process 0 %d\nhuge %ld\n", getpid(), huge_kb());
  for (int i = 4; i < argc; ++i) {
    play(argv[i], wait_ms);
    meet();
    // Who lives now: whoever comes through the last turn first may fork in the next step.
    int live[kMostProcesses];
    for (int turn = 0; turn < kMostProcesses; ++turn) live[turn] = atomic_load(&g_shared->live[turn]);
    for (int turn = 0; turn < kMostProcesses; ++turn) {
      if (turn == g_self) walk();
      if (live[turn] != 0) meet();
    }
  }
  fflush(stdout);
  if (g_self != 0) leave();
  atomic_store(&g_shared->live[0], 0);
  while (waitpid(-1, NULL, 0) > 0) continue;
  return 0;
}
