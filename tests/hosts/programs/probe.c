// Appends to $PROBE_LOG what a program is born with: open descriptors, ignored and blocked signals, limits,
// environment. Two runs of a host that are alike give the same text.
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

extern char** environ;

static char text[65536];
static size_t length;

static void add(const char* format, ...) {
  va_list values;
  va_start(values, format);
  const int more = vsnprintf(text + length, sizeof(text) - length, format, values);
  va_end(values);
  if (more > 0) length += (size_t)more;
  if (length >= sizeof(text)) length = sizeof(text) - 1;
}

// Files of a run, of which each way has its own, count as one.
static void add_target(char* target) {
  if (strstr(target, " (deleted)") != NULL) {  // temporary files are named by number
    add("a deleted file");
    return;
  }
  char* number = strchr(target, ':');
  if (target[0] != '/' && number != NULL && number[1] == '[') *number = '\0';  // pipe:[1234]
  const char* slash = strrchr(target, '/');
  const char* scratch = strstr(target, "whyrss-hosts.");
  add("%s", target[0] == '/' && scratch != NULL && slash != NULL ? slash + 1 : target);
}

static void add_descriptors(void) {
  for (int fd = 0; fd < 4096; ++fd) {
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0) continue;
    char path[64], target[4096];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    const ssize_t got = readlink(path, target, sizeof(target) - 1);
    target[got > 0 ? got : 0] = '\0';
    add("fd %d flags %o ", fd, flags);
    add_target(target);
    add("\n");
  }
}

static void add_signals(void) {
  sigset_t blocked;
  sigprocmask(SIG_SETMASK, NULL, &blocked);
  for (int number = 1; number < 65; ++number) {
    struct sigaction action;
    if (sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN) add("ignored %d\n", number);
    if (sigismember(&blocked, number) == 1) add("blocked %d\n", number);
  }
  stack_t stack;
  if (sigaltstack(NULL, &stack) == 0 && !(stack.ss_flags & SS_DISABLE)) add("alternate stack\n");
}

static void add_limits(void) {
  for (int which = 0; which < RLIM_NLIMITS; ++which) {
    struct rlimit limit;
    if (getrlimit((__rlimit_resource_t)which, &limit) == 0)
      add("limit %d %llu %llu\n", which, (unsigned long long)limit.rlim_cur, (unsigned long long)limit.rlim_max);
  }
}

static void add_process(void) {
  const mode_t mask = umask(0);
  add("umask %o, ", mask);
  int reaper = 0;
  prctl(PR_GET_CHILD_SUBREAPER, &reaper);
  add("subreaper %d, dumpable %d, no new privileges %d, seccomp %d, slack %d, ", reaper, prctl(PR_GET_DUMPABLE),
      prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), prctl(PR_GET_SECCOMP), prctl(PR_GET_TIMERSLACK));
  add("priority %d\n", getpriority(PRIO_PROCESS, 0));
  for (int which = ITIMER_REAL; which <= ITIMER_PROF; ++which) {
    struct itimerval timer;
    if (getitimer((__itimer_which_t)which, &timer) == 0 && (timer.it_value.tv_sec || timer.it_value.tv_usec))
      add("timer %d runs\n", which);
  }
}

static int compare(const void* one, const void* other) { return strcmp(*(char* const*)one, *(char* const*)other); }

// But for what whyrss is asked with.
static void add_environment(void) {
  size_t count = 0;
  while (environ[count] != NULL) ++count;
  qsort(environ, count, sizeof(*environ), compare);
  for (size_t i = 0; i < count; ++i) {
    if (strncmp(environ[i], "LD_PRELOAD=", 11) == 0 || strncmp(environ[i], "WHYRSS_", 7) == 0) continue;
    add("%.200s\n", environ[i]);
  }
}

int main(void) {
  const char* log = getenv("PROBE_LOG");
  if (log == NULL) return 2;
  add_descriptors();
  add_signals();
  add_limits();
  add_process();
  add_environment();
  add("--\n");
  const int file = open(log, O_WRONLY | O_APPEND);
  return file >= 0 && write(file, text, length) == (ssize_t)length ? 0 : 1;
}
