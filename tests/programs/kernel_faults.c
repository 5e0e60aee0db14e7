// Calls in which the kernel makes fresh pages resident, each in a function of its own name, and what such calls must
// not lose. Prints; runs under the library and without.   kernel_faults once | hazards | shut_in | loop COUNT BYTES
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kPage = 4096, kPages = 16, kBytes = kPages * kPage };
static int g_file, g_pair[2];

static char* fresh(size_t bytes) {
  char* pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) abort();
  madvise(pages, bytes, MADV_NOHUGEPAGE);
  return pages;
}

static void send_bytes(void) {
  static char data[kBytes];
  if (send(g_pair[1], data, kBytes, MSG_DONTWAIT) != kBytes) abort();
}

static FILE* open_file(void) {
  lseek(g_file, 0, SEEK_SET);
  FILE* file = fdopen(dup(g_file), "r");
  if (file == NULL) abort();
  return file;
}

// Each says how many bytes it filled; `expression` is the call.
#define FILLING(name, expression)                                                                         \
  __attribute__((noinline, noclone)) static void name(char* to) {                                         \
    const long filled = (long)(expression);                                                               \
    __asm__ volatile("" : : "r"(to) : "memory");                                                          \
    printf("%s %#lx %ld\n", #name, (unsigned long)to, filled == kBytes || filled == 0 ? kBytes : filled); \
  }

// Two buffers with a hole between them that is not filled.
static struct iovec* halves(char* to) {
  static struct iovec buffers[2];
  buffers[0] = (struct iovec){to, kBytes / 2};
  buffers[1] = (struct iovec){to + kBytes, kBytes / 2};
  return buffers;
}
static struct msghdr* message(char* to) {
  static struct msghdr header;
  header = (struct msghdr){.msg_iov = halves(to), .msg_iovlen = 2};
  return &header;
}
static long read_items(char* to, size_t (*function)(void*, size_t, size_t, FILE*)) {
  FILE* file = open_file();
  const size_t items = function(to, 8, kBytes / 8, file);
  fclose(file);
  return (long)items * 8;
}

FILLING(by_read, (lseek(g_file, 0, SEEK_SET), read(g_file, to, kBytes)))
FILLING(by_pread, pread(g_file, to, kBytes, 0))
FILLING(by_pread64, pread64(g_file, to, kBytes, 0))
FILLING(by_readv, (lseek(g_file, 0, SEEK_SET), readv(g_file, halves(to), 2)))
FILLING(by_preadv, preadv(g_file, halves(to), 2, 0))
FILLING(by_preadv2, preadv2(g_file, halves(to), 2, 0, 0))
FILLING(by_recv, (send_bytes(), recv(g_pair[0], to, kBytes, MSG_WAITALL)))
FILLING(by_recvfrom, (send_bytes(), recvfrom(g_pair[0], to, kBytes, MSG_WAITALL, NULL, NULL)))
FILLING(by_recvmsg, (send_bytes(), recvmsg(g_pair[0], message(to), MSG_WAITALL)))
FILLING(by_fread, read_items(to, fread))
FILLING(by_fread_unlocked, read_items(to, fread_unlocked))
FILLING(by_populate_read, madvise(to, kBytes, 22 /* MADV_POPULATE_READ */))
FILLING(by_populate_write, madvise(to, kBytes, 23 /* MADV_POPULATE_WRITE */))
FILLING(by_raw_madvise, syscall(SYS_madvise, to, kBytes, 23))
FILLING(by_mlock, mlock(to, kBytes))
FILLING(by_mlock2, mlock2(to, kBytes, 0))

enum { kMapping = MAP_PRIVATE | MAP_ANONYMOUS };
__attribute__((noinline, noclone)) static void by_map(const char* name, int flags) {
  const char* to = mmap(NULL, kBytes, PROT_READ | PROT_WRITE, kMapping | flags, -1, 0);
  printf("%s %#lx %d\n", name, (unsigned long)to, to != MAP_FAILED ? kBytes : -1);
}
__attribute__((noinline, noclone)) static void by_raw_map(const char* name) {
  const long to = syscall(SYS_mmap, NULL, kBytes, PROT_READ | PROT_WRITE, kMapping | MAP_POPULATE, -1, 0);
  printf("%s %#lx %d\n", name, (unsigned long)to, to > 0 ? kBytes : -1);
}

// As _FORTIFY_SOURCE makes them, where the buffer's size is known and that of the read is not.
static volatile size_t g_bytes = kBytes;
#define BUFFER(name) static char name[kBytes] __attribute__((aligned(4096)))
BUFFER(g_read);
BUFFER(g_pread);
BUFFER(g_recv);
BUFFER(g_recvfrom);
BUFFER(g_fread);
BUFFER(g_unlocked);
FILLING(checked_read, (lseek(g_file, 0, SEEK_SET), read(g_file, g_read, g_bytes)))
FILLING(checked_pread, pread(g_file, g_pread, g_bytes, 0))
FILLING(checked_recv, (send_bytes(), recv(g_pair[0], g_recv, g_bytes, MSG_WAITALL)))
FILLING(checked_recvfrom, (send_bytes(), recvfrom(g_pair[0], g_recvfrom, g_bytes, MSG_WAITALL, NULL, NULL)))
static FILE* g_stream;
FILLING(checked_fread, (g_stream = open_file(), fread(g_fread, 1, g_bytes, g_stream)))
FILLING(checked_fread_unlocked, (g_stream = open_file(), fread_unlocked(g_unlocked, 1, g_bytes, g_stream)))

static int once(void) {
  void (*const filling[])(char*) = {by_read,           by_pread,       by_pread64,        by_recv,
                                    by_recvfrom,       by_fread,       by_fread_unlocked, by_populate_read,
                                    by_populate_write, by_raw_madvise, by_mlock,          by_mlock2};
  for (size_t i = 0; i < sizeof filling / sizeof *filling; ++i) filling[i](fresh(kBytes));
  void (*const filling_two[])(char*) = {by_readv, by_preadv, by_preadv2, by_recvmsg};
  for (size_t i = 0; i < sizeof filling_two / sizeof *filling_two; ++i) filling_two[i](fresh(2 * kBytes));
  by_map("by_populate", MAP_POPULATE);
  by_map("by_locked", MAP_LOCKED);
  by_raw_map("by_raw_map");
  checked_read(g_read);
  checked_pread(g_pread);
  checked_recv(g_recv);
  checked_recvfrom(g_recvfrom);
  checked_fread(g_fread);
  checked_fread_unlocked(g_unlocked);
  return 0;
}

// Reads `count` times `bytes` into fresh memory, and as often into memory that is there.
__attribute__((noinline, noclone)) static void into_fresh(char* to, int count, size_t bytes) {
  for (int i = 0; i < count; ++i)
    if (pread(g_file, to + (size_t)i * bytes, bytes, 0) != (ssize_t)bytes) abort();
}
__attribute__((noinline, noclone)) static void into_used(char* to, int count, size_t bytes) {
  for (int i = 0; i < count; ++i)
    if (pread(g_file, to, bytes, 0) != (ssize_t)bytes) abort();
}
static int loop(int count, size_t bytes) {
  char* to = fresh((size_t)count * bytes);
  into_fresh(to, count, bytes);
  into_used(to, count, bytes);
  printf("into_fresh %#lx %zu\n", (unsigned long)to, (size_t)count * bytes);
  return 0;
}

static void say(const char* what, long result) { printf("%s %ld %d\n", what, result, result < 0 ? errno : 0); }

static int g_pipe[2];
static sigjmp_buf g_before;
static volatile int g_jump, g_done;
static void handle(int signal) {
  (void)signal;
  pread(g_file, fresh(kBytes), kBytes, 0);
  if (g_jump && !g_done) siglongjmp(g_before, 1);
}

static pthread_t g_main, g_other;
static void* interrupt_main(void* nothing) {
  (void)nothing;
  while (!g_done) {
    usleep(2000);
    pthread_kill(g_main, SIGUSR1);
  }
  return NULL;
}

// Of a pipe that nobody writes to.
static long interrupted_read(void) {
  long result = 1;
  g_done = 0;
  if (sigsetjmp(g_before, 1) == 0) {
    pthread_create(&g_other, NULL, interrupt_main, NULL);
    result = read(g_pipe[0], fresh(kBytes), kBytes);
  }
  const int saved = errno;
  g_done = 1;
  pthread_join(g_other, NULL);
  errno = saved;
  return result;
}

static int g_cleaned;
static void clean(void* nothing) {
  (void)nothing;
  ++g_cleaned;
}
static void* read_for_ever(void* function) {
  char* to = fresh(kBytes);
  struct iovec* buffers = halves(fresh(2 * kBytes));
  pthread_cleanup_push(clean, NULL);
  if (strcmp(function, "read") == 0) read(g_pipe[0], to, kBytes);
  if (strcmp(function, "readv") == 0) readv(g_pipe[0], buffers, 2);
  if (strcmp(function, "recv") == 0) recv(g_pair[0], to, kBytes, 0);
  if (strcmp(function, "recvmsg") == 0) recvmsg(g_pair[0], message(to), 0);
  pthread_cleanup_pop(0);
  return NULL;
}

static void* volatile g_bad = (void*)16;  // the compiler would know better
static volatile int g_negative = -1;

static int hazards(void) {
  void* bad = g_bad;
  g_main = pthread_self();
  say("bad buffer", pread(g_file, bad, kBytes, 0));
  say("bad file", read(-1, fresh(kBytes), kBytes));
  say("bad vector", readv(g_file, bad, 2));
  say("negative count", readv(g_file, halves(fresh(2 * kBytes)), g_negative));
  say("bad message", recvmsg(g_pair[0], bad, MSG_DONTWAIT));
  say("would block", recv(g_pair[0], fresh(kBytes), kBytes, MSG_DONTWAIT));
  say("too much", (long)fread(fresh(kBytes), (size_t)-1, 2, stdin) == 0 ? 0 : 1);
  say("end of file", pread(g_file, fresh(kBytes), kBytes, 1L << 40));
  say("bad lock", mlock((void*)(uintptr_t)-kPage, kPage));
  say("bad advice", madvise(bad, kPage, 23));
  errno = 42;
  say("good read", pread(g_file, fresh(kBytes), kBytes, 0));
  printf("errno %d\n", errno);

  struct sigaction action = {.sa_handler = handle};
  sigaction(SIGUSR1, &action, NULL);
  say("interrupted", interrupted_read());
  g_jump = 1;
  for (int i = 0; i < 20; ++i)
    if (interrupted_read() != 1) say("left by longjmp", -1);
  g_jump = 0;

  const char* const calls[] = {"read", "readv", "recv", "recvmsg"};
  for (int i = 0; i < 4; ++i) {
    pthread_t thread;
    void* result = NULL;
    pthread_create(&thread, NULL, read_for_ever, (void*)calls[i]);
    usleep(1000);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    printf("%s cancelled %d %d\n", calls[i], result == PTHREAD_CANCELED, g_cleaned);
  }

  const pid_t child = vfork();
  if (child == 0) {
    pread(g_file, fresh(kBytes), kBytes, 0);
    _exit(7);
  }
  int status = 0;
  waitpid(child, &status, 0);
  printf("vfork child %d\n", WEXITSTATUS(status));
  by_read(fresh(kBytes));
  return 0;
}

// A program that shuts itself in: from here on it is killed for what a guest could want to ask.
static volatile int g_shut;
static void* work_outside(void* to) {
  char* pages = to;
  for (int i = 0; i < 200; ++i) pages[i * kPage] = 1;
  while (!g_shut) usleep(1000);
  for (int i = 200; i < 400; ++i) pages[i * kPage] = 1;
  return NULL;
}
static int shut_in(void) {
  char *pages = fresh(400 * kPage), *of_thread = fresh(400 * kPage), *buffers = fresh(20 * kBytes);
  pthread_t thread;
  pthread_create(&thread, NULL, work_outside, of_thread);
  // One that is refused changes nothing.
  say("no filter", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL));
  say("nor this", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL));
  for (int i = 0; i < 200; ++i) pages[i * kPage] = 1;
  into_fresh(buffers, 10, kBytes);

  enum { kForbidden = 6 };
  const unsigned forbidden[kForbidden] = {SYS_perf_event_open, SYS_getrusage,   SYS_prctl,
                                          SYS_sigaltstack,     SYS_userfaultfd, SYS_process_vm_readv};
  struct sock_filter filter[2 + 2 * kForbidden];
  unsigned short count = 0;
  filter[count++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0);
  for (int i = 0; i < kForbidden; ++i) {
    filter[count++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, forbidden[i], 0, 1);
    filter[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
  }
  filter[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  const struct sock_fprog program = {count, filter};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  say("filter", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program));
  g_shut = 1;
  for (int i = 200; i < 400; ++i) pages[i * kPage] = 1;
  into_fresh(buffers + 10 * kBytes, 10, kBytes);
  pthread_join(thread, NULL);
  free(malloc(1 << 20));
  const pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 400; ++i) pages[i * kPage] = 2;
    _exit(3);
  }
  int status = 0;
  waitpid(child, &status, 0);
  printf("pages %#lx 0\nchild %d\n", (unsigned long)pages, status);
  return 0;
}

int main(int word_count, char** words) {
  const char* what = word_count > 1 ? words[1] : "";
  setvbuf(stdout, NULL, _IOLBF, 0);
  const size_t file_bytes = word_count > 3 ? strtoul(words[3], NULL, 0) : kBytes;
  g_file = memfd_create("data", 0);
  char* data = calloc(1, file_bytes);
  if (data == NULL || write(g_file, data, file_bytes) != (ssize_t)file_bytes || pipe(g_pipe) != 0 ||
      socketpair(AF_UNIX, SOCK_STREAM, 0, g_pair) != 0)
    return 1;
  if (strcmp(what, "once") == 0) return once();
  if (strcmp(what, "hazards") == 0) return hazards();
  if (strcmp(what, "shut_in") == 0) return shut_in();
  if (strcmp(what, "loop") == 0 && word_count > 3) return loop(atoi(words[2]), file_bytes);
  return 2;
}
