// Touches memory fast, page by page, and is killed in the middle of it. COUNT is a file that holds how many pages it
// had touched (8 bytes): it is mapped, so that it is right at whatever instruction the program is killed.
//   killed_midway COUNT grow MS     new memory
//   killed_midway COUNT copy MS     in a child, memory that it inherited
//   killed_midway COUNT both MS     in a child, a page of each in turn
//   killed_midway COUNT together MS three children copy what they inherited, and all are killed at once, as for lack of
//                                   memory: of each its pid and its pages
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kPage = 4096, kWorkPerPage = 100, kChildren = 3 };
static const size_t kBytes = 1UL << 30;
static volatile uint64_t* g_pages;
static int g_after_ms;

static void* kill_later(void* unused) {
  usleep(g_after_ms * 1000);
  kill(getpid(), SIGKILL);
  return unused;
}

static volatile uint64_t* mapped_count(const char* path) {
  const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
  if (fd < 0 || ftruncate(fd, kPage) != 0) abort();
  void* count = mmap(NULL, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (count == MAP_FAILED) abort();
  close(fd);
  return count;
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
    ++*g_pages;
    for (volatile int work = 0; work < kWorkPerPage; ++work) continue;
  }
}

static void be_killed(volatile char* memory, volatile char* other) {
  pthread_t killer;
  if (pthread_create(&killer, NULL, kill_later, NULL) != 0) abort();
  touch(memory, other);
  pause();
}

static int copy_together(volatile char* memory) {
  if (setpgid(0, 0) != 0) abort();
  for (int child = 0; child < kChildren; ++child) {
    if (fork() != 0) continue;
    g_pages[2 * child] = (uint64_t)getpid();
    g_pages += 2 * child + 1;
    usleep(200000);
    touch(memory, NULL);
    pause();
  }
  usleep((200 + g_after_ms) * 1000);
  return kill(0, SIGKILL);
}

int main(int count, char** arguments) {
  if (count != 4) return 2;
  const char* what = arguments[2];
  g_pages = mapped_count(arguments[1]);
  g_after_ms = atoi(arguments[3]);
  volatile char* memory = new_memory();
  if (strcmp(what, "grow") == 0) be_killed(memory, NULL);
  touch(memory, NULL);
  *g_pages = 0;
  usleep(300000);
  if (strcmp(what, "together") == 0) return copy_together(memory);
  const pid_t child = fork();
  if (child == 0) {
    usleep(200000);
    be_killed(memory, strcmp(what, "both") == 0 ? new_memory() : NULL);
  }
  waitpid(child, NULL, 0);
  return 0;
}
