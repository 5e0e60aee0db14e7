// Programs that fork in ways of their own; each prints what it found, the same with the library and without.
//   fork_guests descriptors | no_descriptors | close_range | own_userfaultfd | threads | signal | raw | spawn |
//               chroot FOLDER | outlive [WAIT_MS]
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kPage = 4096, kPages = 64, kThreads = 8, kForks = 10, kSignals = 20 };
extern char** environ;
static char* g_pages;
static int g_wait_ms = 200;  // for marks, which do not come without the library; the last argument

static void sleep_ms(int ms) {
  const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
  nanosleep(&time, NULL);
}

static char* map_pages(void) {
  char* pages = mmap(NULL, kPages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) exit(9);
  madvise(pages, kPages * kPage, MADV_NOHUGEPAGE);
  return pages;
}

static void write_pages(char value) {
  for (int page = 0; page < kPages; ++page) ((volatile char*)g_pages)[page * kPage] = value;
}

static int all_are(char value) {
  for (int page = 0; page < kPages; ++page)
    if (g_pages[page * kPage] != value) return 0;
  return 1;
}

// How many of the pages are marked (pagemap bit 57).
static int marked(void) {
  uint64_t entries[kPages] = {0};
  const int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t got = pread(fd, entries, sizeof entries, (off_t)((uintptr_t)g_pages / kPage * sizeof entries[0]));
  close(fd);
  int count = 0;
  for (size_t page = 0; page < (got > 0 ? (size_t)got / sizeof entries[0] : 0); ++page)
    count += (int)(entries[page] >> 57 & 1);
  return count;
}

static int wait_for(int marks, int ms) {
  for (int waited = 0; waited < ms && marked() != marks; waited += 10) sleep_ms(10);
  return marked() == marks;
}

static int reap(pid_t child) {
  int status = -1;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

static void print_descriptors(const char* who) {
  printf("%s:", who);
  for (int fd = 0; fd < 1024; ++fd)
    if (fcntl(fd, F_GETFD) >= 0) printf(" %d", fd);
  printf("\n");
  fflush(stdout);
}

static int descriptors(void) {
  for (int round = 0; round < 3; ++round) {
    const pid_t child = fork();
    print_descriptors(child == 0 ? "child" : "parent");
    const int fresh = dup(0);  // the lowest one that is free
    printf("%d\n", fresh);
    close(fresh);
    fflush(stdout);
    if (child == 0) _exit(0);
    if (reap(child) != 0) return 1;
  }
  return 0;
}

static int no_descriptors(void) {
  const struct rlimit none = {3, 3};
  if (setrlimit(RLIMIT_NOFILE, &none) != 0) return 9;
  const pid_t child = fork();
  if (child == 0) {
    write_pages(2);
    _exit(all_are(2) ? 0 : 1);
  }
  return reap(child) != 0 || !all_are(1);
}

static int closes_all(void) {
  const pid_t child = fork();
  if (child == 0) {
    syscall(SYS_close_range, 3, ~0U, 0);
    wait_for(kPages, g_wait_ms);
    write_pages(2);
    _exit(all_are(2) && marked() == 0 ? 0 : 1);
  }
  return reap(child) != 0 || !all_are(1);
}

static char* g_missing;
static void* fill_missing(void* descriptor) {
  const int fd = *(int*)descriptor;
  static char page[kPage] __attribute__((aligned(4096)));
  memset(page, 0x5a, sizeof page);
  while (1) {
    struct pollfd entry = {.fd = fd, .events = POLLIN, .revents = 0};
    struct uffd_msg message;
    if (poll(&entry, 1, -1) < 0 || read(fd, &message, sizeof message) != sizeof message) continue;
    struct uffdio_copy copy = {.dst = message.arg.pagefault.address & ~(uint64_t)(kPage - 1),
                               .src = (uintptr_t)page,
                               .len = kPage,
                               .mode = 0,
                               .copy = 0};
    ioctl(fd, UFFDIO_COPY, &copy);
  }
  return NULL;
}

static int own_userfaultfd(void) {
  int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
  if (fd < 0) return printf("refused\n") < 0;
  g_missing = map_pages();
  struct uffdio_api api = {.api = UFFD_API, .features = 0, .ioctls = 0};
  struct uffdio_register all = {.range = {.start = (uintptr_t)g_missing, .len = kPages * kPage},
                                .mode = UFFDIO_REGISTER_MODE_MISSING,
                                .ioctls = 0};
  pthread_t thread;
  if (ioctl(fd, UFFDIO_API, &api) != 0 || ioctl(fd, UFFDIO_REGISTER, &all) != 0 ||
      pthread_create(&thread, NULL, fill_missing, &fd) != 0)
    return 9;
  for (int page = 0; page < kPages / 2; ++page)
    if (((volatile char*)g_missing)[page * kPage] != 0x5a) return 1;
  const pid_t child = fork();
  if (child == 0) {
    wait_for(kPages, g_wait_ms);
    _exit(g_missing[0] == 0x5a && g_missing[(kPages - 1) * kPage] == 0 ? 0 : 1);
  }
  wait_for(kPages, g_wait_ms);
  for (int page = 0; page < kPages; ++page)
    if (((volatile char*)g_missing)[page * kPage + 1] != 0x5a) return 1;
  return reap(child) != 0;
}

static void* fork_often(void* failures) {
  for (int i = 0; i < kForks; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      write_pages(3);
      _exit(all_are(3) ? 0 : 1);
    }
    if (reap(child) != 0) __atomic_fetch_add((int*)failures, 1, __ATOMIC_RELAXED);
  }
  return NULL;
}

static int threads(void) {
  int failures = 0;
  pthread_t running[kThreads];
  for (int i = 0; i < kThreads; ++i)
    if (pthread_create(&running[i], NULL, fork_often, &failures) != 0) return 9;
  for (int i = 0; i < kThreads; ++i) pthread_join(running[i], NULL);
  return failures != 0 || !all_are(1);
}

static volatile sig_atomic_t g_forked, g_failed;

// Once: where a fork takes longer than a timer that repeats, only the handler would run.
static void alarm_soon(void) {
  const struct itimerval once = {{0, 0}, {0, 2000}};
  setitimer(ITIMER_REAL, &once, NULL);
}

static void fork_in_handler(int number) {
  (void)number;
  const int saved = errno;
  const pid_t child = _Fork();
  if (child == 0) {
    write_pages(4);
    _exit(all_are(4) ? 0 : 1);
  }
  if (reap(child) != 0) g_failed = 1;
  if (++g_forked < kSignals) alarm_soon();
  errno = saved;
}

static int in_signal(void) {
  signal(SIGALRM, fork_in_handler);
  alarm_soon();
  while (g_forked < kSignals) free(malloc(70000));
  return g_failed || !all_are(1);
}

static int raw(void) {
  for (int i = 0; i < 3; ++i) {
    const pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
      free(malloc(100000));  // it attaches here
      write_pages(5);
      syscall(SYS_exit_group, all_are(5) ? 0 : 1);
    }
    if (reap(child) != 0) return 1;
  }
  return !all_are(1);
}

static int spawn_true(char** argv) {
  pid_t child = 0;
  return posix_spawn(&child, argv[0], NULL, NULL, argv, environ) != 0 ? -1 : reap(child);
}

static int vfork_true(char** argv) {
  const pid_t child = vfork();
  if (child == 0) {
    execv(argv[0], argv);
    _exit(9);
  }
  return reap(child);
}

static int spawn(void) {
  char* argv[] = {"/bin/true", NULL};
  for (int i = 0; i < 3; ++i)
    if (spawn_true(argv) != 0 || vfork_true(argv) != 0) return 1;
  sleep_ms(300);
  return marked() != 0;
}

static int in_chroot(const char* folder) {
  if (chroot(folder) != 0 || chdir("/") != 0) return 9;
  const pid_t child = fork();
  if (child == 0) {
    write_pages(6);
    _exit(all_are(6) ? 0 : 1);
  }
  return reap(child) != 0 || !all_are(1);
}

// Prints "tracked 0|1" when the child has waited for marks, and goes on after a line on stdin: nothing is marked then.
static int outlive(void) {
  const pid_t child = fork();
  if (child == 0) {
    printf("tracked %d\n", wait_for(kPages, g_wait_ms));
    fflush(stdout);
    getchar();
    const int freed = wait_for(0, g_wait_ms);
    write_pages(7);
    _exit(freed && all_are(7) ? 0 : 1);
  }
  return reap(child) != 0 || !all_are(1);
}

int main(int argc, char** argv) {
  const char* mode = argc > 1 ? argv[1] : "";
  if (argc > 2 && argv[argc - 1][0] != '/') g_wait_ms = atoi(argv[argc - 1]);
  g_pages = map_pages();
  write_pages(1);
  int result = 9;
  if (strcmp(mode, "descriptors") == 0) result = descriptors();
  if (strcmp(mode, "no_descriptors") == 0) result = no_descriptors();
  if (strcmp(mode, "close_range") == 0) result = closes_all();
  if (strcmp(mode, "own_userfaultfd") == 0) result = own_userfaultfd();
  if (strcmp(mode, "threads") == 0) result = threads();
  if (strcmp(mode, "signal") == 0) result = in_signal();
  if (strcmp(mode, "raw") == 0) result = raw();
  if (strcmp(mode, "spawn") == 0) result = spawn();
  if (strcmp(mode, "chroot") == 0 && argc > 2) result = in_chroot(argv[2]);
  if (strcmp(mode, "outlive") == 0) result = outlive();
  printf("%s %d\n", mode, result);
  return result;
}
