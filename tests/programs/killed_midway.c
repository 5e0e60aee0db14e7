// Touches memory fast, page by page, and is killed in the middle of it. Prints how many pages it had touched.
//   killed_midway grow MS           new memory
//   killed_midway copy MS           in a child, memory that it inherited
//   killed_midway both MS           in a child, a page of each in turn
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kPage = 4096, kWorkPerPage = 100 };
static const size_t kBytes = 1UL << 30;
static volatile size_t g_pages;
static int g_after_ms;

static void* kill_later(void* unused) {
  usleep(g_after_ms * 1000);
  const size_t pages = g_pages;
  printf("%zu\n", pages);
  fflush(stdout);
  kill(getpid(), SIGKILL);
  return unused;
}

static volatile char* new_memory(void) {
  char* memory = mmap(NULL, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) abort();
  madvise(memory, kBytes, MADV_NOHUGEPAGE);
  return memory;
}

static void touch(volatile char* memory, volatile char* other) {
  for (size_t at = 0; at < kBytes; at += kPage) {
    memory[at] = 1;
    if (other != NULL) other[at] = 1;
    ++g_pages;
    for (volatile int work = 0; work < kWorkPerPage; ++work) continue;
  }
}

static void be_killed(volatile char* memory, volatile char* other) {
  pthread_t killer;
  if (pthread_create(&killer, NULL, kill_later, NULL) != 0) abort();
  touch(memory, other);
  pause();
}

int main(int count, char** arguments) {
  if (count != 3) return 2;
  const char* what = arguments[1];
  g_after_ms = atoi(arguments[2]);
  volatile char* memory = new_memory();
  if (strcmp(what, "grow") == 0) be_killed(memory, NULL);
  touch(memory, NULL);
  g_pages = 0;
  usleep(300000);
  const pid_t child = fork();
  if (child == 0) {
    usleep(200000);
    be_killed(memory, strcmp(what, "both") == 0 ? new_memory() : NULL);
  }
  waitpid(child, NULL, 0);
  return 0;
}
