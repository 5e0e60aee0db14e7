// Holds up the end of every process by 500 ms, as a machine with more work than cores may: slow_exits PROGRAM...
// By a seccomp filter, which also reaches processes that no debugger may trace. It ends with PROGRAM's exit status,
// when the last process under the filter has ended. Exit status 125: this machine does not let us.
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kDelayUs = 500 * 1000, kUnable = 125 };

static int unable(const char* what) {
  perror(what);
  return kUnable;
}

// The descriptor on which exit_group() of this process and its children is announced.
static int hold_exits(void) {
  struct sock_filter filter[] = {
      {.code = BPF_LD | BPF_W | BPF_ABS, .k = offsetof(struct seccomp_data, nr)},
      {.code = BPF_JMP | BPF_JEQ | BPF_K, .jf = 1, .k = SYS_exit_group},
      {.code = BPF_RET | BPF_K, .k = SECCOMP_RET_USER_NOTIF},
      {.code = BPF_RET | BPF_K, .k = SECCOMP_RET_ALLOW},
  };
  struct sock_fprog program = {.len = sizeof filter / sizeof *filter, .filter = filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
  return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
}

// Until nobody is left under the filter.
static void let_go_late(int listener) {
  struct pollfd entry = {.fd = listener, .events = POLLIN};
  while (poll(&entry, 1, -1) > 0 && (entry.revents & POLLIN) != 0) {
    struct seccomp_notif asked = {0};
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asked) != 0) continue;  // it was killed meanwhile
    usleep(kDelayUs);
    struct seccomp_notif_resp answer = {.id = asked.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
    ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
  }
}

int main(int word_count, char** words) {
  int number[2], go[2], listener = -1;
  if (word_count < 2 || pipe(number) != 0 || pipe(go) != 0) return unable("usage: slow_exits PROGRAM...");
  const pid_t child = fork();
  if (child == 0) {
    listener = hold_exits();
    if (write(number[1], &listener, sizeof listener) != sizeof listener) _exit(kUnable);
    char word = 0;
    if (listener >= 0 && read(go[0], &word, 1) != 1) _exit(kUnable);
    if (listener < 0) syscall(SYS_exit, kUnable);
    for (int fd = listener > number[1] ? listener : number[1]; fd > STDERR_FILENO; --fd) close(fd);
    execvp(words[1], words + 1);
    perror(words[1]);
    _exit(127);
  }
  if (read(number[0], &listener, sizeof listener) != sizeof listener || listener < 0) return unable("seccomp");
  const int process = (int)syscall(SYS_pidfd_open, child, 0);
  listener = (int)syscall(SYS_pidfd_getfd, process, listener, 0);
  if (listener < 0) {
    perror("pidfd_getfd");
    kill(child, SIGKILL);
    return kUnable;
  }
  if (write(go[1], "", 1) != 1) return unable("write");
  let_go_late(listener);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
