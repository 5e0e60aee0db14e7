// Pages shared by a fork of which it is known who copies, reuses or leaves each. Runs with the library and without.
//   cow_pages [WAIT_MS]: WAIT_MS is how long both processes wait for their pages to be marked (pagemap bit 57); without
//   marks they wait that long and go on (default 400).
// 400 pages are filled by the parent, then forked once. Steps, each by one process alone, each followed by a snapshot
// of both processes (the writer's first):
//   1 child_copies    the child writes pages 0 to 99       copied by the child; the parent's become its own
//   2 parent_copies   the parent writes pages 100 to 149   copied by the parent; the child's become its own
//   3 parent_reuses   the parent writes pages 0 to 19      no copy
//   4 child_reuses    the child writes pages 100 to 129    no copy
//   5 the child ends: pages 150 to 399 become the parent's own, without a copy or a fault; snapshot of the parent.
// Prints "pages ADDRESS 400", "parent PID", "child PID" and "tracked 0|1": whether both saw marks before step 1.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shim/whyrss.h"

enum { kPage = 4096, kPages = 400 };

#define WRITING(name)                                                                            \
  __attribute__((noinline, noclone)) static void name(char* pages, int from, int to) {           \
    for (int i = from; i < to; ++i) ((volatile char*)pages)[i * kPage + 24] = 2; /* the write */ \
    __asm__ volatile("");                                                                        \
  }
WRITING(fill_pages)
WRITING(child_copies)
WRITING(parent_copies)
WRITING(parent_reuses)
WRITING(child_reuses)

static void sleep_ms(int ms) {
  const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
  nanosleep(&time, NULL);
}

static int is_marked(const char* page) {
  uint64_t entry = 0;
  const int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t got = pread(fd, &entry, sizeof entry, (off_t)((uintptr_t)page / kPage * sizeof entry));
  close(fd);
  return got == sizeof entry && (entry >> 57 & 1) != 0;
}

// The last page is never written: what is marked is marked in one go with the others.
static char wait_for_marks(const char* pages, int wait_ms) {
  const char* last = pages + (kPages - 1) * kPage;
  for (int waited = 0; waited < wait_ms && !is_marked(last); waited += 10) sleep_ms(10);
  sleep_ms(50);  // the walk that follows the marking
  return is_marked(pages) && is_marked(last) ? '1' : '0';
}

static int g_to_child[2], g_to_parent[2];
static void tell(int fd, char what) {
  if (write(fd, &what, 1) != 1) abort();
}
static char hear(int fd) {
  char what = 0;
  if (read(fd, &what, 1) != 1) abort();
  return what;
}

// The other process's snapshot, between two steps.
static void let_child_look(void) {
  tell(g_to_child[1], 'l');
  hear(g_to_parent[0]);
}

static void run_child(char* pages, int wait_ms) {
  tell(g_to_parent[1], wait_for_marks(pages, wait_ms));
  while (1) {
    switch (hear(g_to_child[0])) {
      case '1':
        child_copies(pages, 0, 100);
        break;
      case '4':
        child_reuses(pages, 100, 130);
        break;
      case 'l':
        break;
      default:
        _exit(0);
    }
    WHYRSS_SNAPSHOT();
    tell(g_to_parent[1], 'd');
  }
}

int main(int argc, char** argv) {
  const int wait_ms = argc > 1 ? atoi(argv[1]) : 400;
  char* pages = mmap(NULL, kPages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED || pipe(g_to_child) != 0 || pipe(g_to_parent) != 0) return 9;
  madvise(pages, kPages * kPage, MADV_NOHUGEPAGE);
  fill_pages(pages, 0, kPages);
  printf("pages %lx %d\nparent %d\n", (unsigned long)(uintptr_t)pages, kPages, getpid());
  fflush(stdout);
  const pid_t child = fork();
  if (child < 0) return 9;
  if (child == 0) run_child(pages, wait_ms);
  printf("child %d\n", child);
  const char own = wait_for_marks(pages, wait_ms);
  const char childs = hear(g_to_parent[0]);
  printf("tracked %c\n", own == '1' && childs == '1' ? '1' : '0');
  WHYRSS_SNAPSHOT();
  let_child_look();

  tell(g_to_child[1], '1');
  hear(g_to_parent[0]);
  WHYRSS_SNAPSHOT();

  parent_copies(pages, 100, 150);
  WHYRSS_SNAPSHOT();
  let_child_look();

  parent_reuses(pages, 0, 20);
  WHYRSS_SNAPSHOT();
  let_child_look();

  tell(g_to_child[1], '4');
  hear(g_to_parent[0]);
  WHYRSS_SNAPSHOT();

  tell(g_to_child[1], 'q');
  int status = 0;
  if (waitpid(child, &status, 0) != child || status != 0) return 8;
  WHYRSS_SNAPSHOT();
  fflush(stdout);
  return 0;
}
