// Becomes number 1 of a pid namespace, as containers do it: by the system call, without a /proc of its own. That one
// forks number 2, which allocates and prints its number.
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kBytes = 4 << 20, kCannot = 77 };

static int wait_for(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static void allocate(void) {
  volatile char* block = malloc(kBytes);
  for (int at = 0; at < kBytes; at += 4096) block[at] = 1;
  printf("%d %d\n", (int)getpid(), block[0]);
  fflush(stdout);
  usleep(300000);
  free((void*)block);
}

int main(void) {
  const long first = syscall(SYS_clone, CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | SIGCHLD, 0, 0, 0, 0);
  if (first < 0) return kCannot;
  if (first > 0) return wait_for((pid_t)first);
  if (mount("none", "/proc", "tmpfs", 0, "") != 0) _exit(kCannot);
  const pid_t second = fork();
  if (second == 0) {
    allocate();
    exit(0);
  }
  return wait_for(second);
}
