// What a program sees of SIGTRAP and of signal masks, while it makes page faults all along. Prints it: bare
// and traced runs must print the same.
//   touch_signals handlers | masks | wait | raw | die int3|raise|kill|abort_mask | inherit
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kPage = 4096, kPages = 16 };

static void make_faults(void) {
  char* pages = mmap(NULL, kPages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) abort();
  for (int i = 0; i < kPages; ++i) ((volatile char*)pages)[i * kPage] = 1;
  munmap(pages, kPages * kPage);
}

static volatile sig_atomic_t g_calls, g_code, g_depth, g_deepest, g_usr1_blocked, g_again;

static void note_call(int code) {
  sigset_t mask;
  make_faults();
  pthread_sigmask(SIG_SETMASK, NULL, &mask);
  g_usr1_blocked = sigismember(&mask, SIGUSR1);
  ++g_calls;
  g_code = code;
  if (++g_depth > g_deepest) g_deepest = g_depth;
  if (g_again-- > 0) raise(SIGTRAP);
  --g_depth;
}
static void plain(int signal) { note_call(signal == SIGTRAP ? 1000 : 2000); }
static void detailed(int signal, siginfo_t* info, void* context) {
  note_call(signal == SIGTRAP && context != NULL ? info->si_code : 2000);
}

static const char* name_of(void (*handler)(int)) {
  return handler == SIG_DFL ? "default" : handler == SIG_IGN ? "ignored" : handler == plain ? "plain" : "other";
}

static void say(const char* what) {
  struct sigaction now;
  sigaction(SIGTRAP, NULL, &now);
  const int is_detailed = (now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == detailed;
  printf("%s: calls %d code %d deepest %d usr1 %d; now %s flags %#x mask trap %d usr1 %d\n", what, (int)g_calls,
         (int)g_code, (int)g_deepest, (int)g_usr1_blocked, is_detailed ? "detailed" : name_of(now.sa_handler),
         (unsigned)now.sa_flags, sigismember(&now.sa_mask, SIGTRAP), sigismember(&now.sa_mask, SIGUSR1));
  g_calls = g_code = g_depth = g_deepest = g_usr1_blocked = g_again = 0;
}

static void set(void (*handler)(int), int flags, int also_usr1) {
  struct sigaction action, before;
  memset(&action, 0, sizeof action);
  if (flags & SA_SIGINFO)
    action.sa_sigaction = detailed;
  else
    action.sa_handler = handler;
  action.sa_flags = flags;
  if (also_usr1) sigaddset(&action.sa_mask, SIGUSR1);
  make_faults();
  const int result = sigaction(SIGTRAP, &action, &before);
  printf("sigaction %d, before %#x\n", result, (unsigned)before.sa_flags);
  make_faults();
}

static void* raise_in_thread(void* nothing) {
  make_faults();
  raise(SIGTRAP);
  return nothing;
}

static int handlers(void) {
  say("at start");
  set(plain, 0, 0);
  raise(SIGTRAP);
  say("raise");
  __asm__ volatile("int3");
  say("int3");
  set(NULL, SA_SIGINFO, 1);
  __asm__ volatile("int3");
  say("int3 with details");
  kill(getpid(), SIGTRAP);
  say("kill");
  const union sigval value = {.sival_int = 7};
  sigqueue(getpid(), SIGTRAP, value);
  say("sigqueue");
  pthread_t thread;
  pthread_create(&thread, NULL, raise_in_thread, NULL);
  pthread_join(thread, NULL);
  say("in a thread");
  set(plain, (int)SA_RESETHAND, 0);
  raise(SIGTRAP);
  say("once");
  set(plain, SA_NODEFER, 0);
  g_again = 2;
  raise(SIGTRAP);
  say("nested");
  set(plain, 0, 0);
  g_again = 2;
  raise(SIGTRAP);
  say("one after the other");
  set(SIG_IGN, 0, 0);
  raise(SIGTRAP);
  kill(getpid(), SIGTRAP);
  say("ignored");
  printf("signal: %s\n", name_of(signal(SIGTRAP, plain)));
  raise(SIGTRAP);
  say("signal");
  printf("sysv_signal: %s\n", name_of(sysv_signal(SIGTRAP, plain)));
  raise(SIGTRAP);
  say("sysv_signal");
  printf("signal: %s\n", name_of(signal(SIGTRAP, SIG_DFL)));
  printf("wrong: %d", signal(SIGTRAP, SIG_ERR) == SIG_ERR);
  printf(" %s\n", strerror(errno));
  // A read that a handler interrupts: restarted only where the program asked for it.
  set(plain, 0, 0);
  int ends[2];
  if (pipe(ends) != 0) return 1;
  const pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 100; ++i) {
      usleep(20000);
      kill(getppid(), SIGTRAP);
    }
    _exit(0);
  }
  char byte;
  const ssize_t got = read(ends[0], &byte, 1);
  printf("read %zd %s, called %d\n", got, strerror(errno), g_calls > 0);
  kill(child, SIGKILL);
  int status;
  while (waitpid(child, &status, 0) != child) {
  }
  printf("child %#x\n", status);
  return 0;
}

static void say_mask(const char* what) {
  sigset_t mask, pending;
  make_faults();
  sigprocmask(SIG_BLOCK, NULL, &mask);
  sigpending(&pending);
  printf("%s: blocked", what);
  for (int i = 1; i < 32; ++i)
    if (sigismember(&mask, i)) printf(" %d", i);
  printf("; pending");
  for (int i = 1; i < 32; ++i)
    if (sigismember(&pending, i)) printf(" %d", i);
  printf("\n");
}

static void* say_mask_in_thread(void* what) {
  say_mask(what);
  return NULL;
}

static void in_thread(const char* what) {
  pthread_t thread;
  pthread_create(&thread, NULL, say_mask_in_thread, (void*)what);
  pthread_join(thread, NULL);
}

static int masks(void) {
  sigset_t all, trap, before;
  sigfillset(&all);
  sigemptyset(&trap);
  sigaddset(&trap, SIGTRAP);
  say_mask("at start");
  set(plain, 0, 0);
  for (int i = 0; i < 50; ++i) {
    sigprocmask(SIG_BLOCK, &all, &before);
    make_faults();
    sigprocmask(SIG_SETMASK, &before, NULL);
    make_faults();
  }
  sigprocmask(SIG_BLOCK, &all, &before);
  say_mask("all");
  in_thread("thread of all");
  raise(SIGTRAP);
  kill(getpid(), SIGTRAP);
  say_mask("all, raised");
  const pid_t child = fork();
  if (child == 0) {
    say_mask("child");
    fflush(stdout);
    _exit(0);
  }
  waitpid(child, NULL, 0);
  sigprocmask(SIG_UNBLOCK, &trap, NULL);
  say("delivered");
  say_mask("without trap");
  sigprocmask(SIG_SETMASK, &before, NULL);
  pthread_sigmask(SIG_BLOCK, &trap, &before);
  say_mask("trap alone");
  raise(SIGTRAP);
  sigset_t none;
  sigemptyset(&none);
  printf("sigsuspend %d", sigsuspend(&none));
  printf(" %s\n", strerror(errno));
  say("sigsuspend");
  struct timespec soon = {0, 1000000};
  printf("ppoll %d\n", ppoll(NULL, 0, &soon, &none));
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  say_mask("at end");
  printf("wrong how: %d", sigprocmask(99, &trap, NULL));
  printf(" %s\n", strerror(errno));
  say_mask("after it");
  return 0;
}

static int wait_for_it(void) {
  sigset_t all, trap;
  sigfillset(&all);
  sigemptyset(&trap);
  sigaddset(&trap, SIGTRAP);
  sigprocmask(SIG_BLOCK, &all, NULL);
  make_faults();
  raise(SIGTRAP);
  int got = 0;
  printf("sigwait %d", sigwait(&all, &got));
  printf(" %d\n", got);
  siginfo_t info;
  memset(&info, 0, sizeof info);
  kill(getpid(), SIGTRAP);
  make_faults();
  printf("sigwaitinfo %d", sigwaitinfo(&trap, &info));
  printf(" code %d own %d\n", info.si_code, info.si_pid == getpid());
  make_faults();
  const struct timespec soon = {0, 1000000};
  printf("sigtimedwait %d", sigtimedwait(&all, &info, &soon));
  printf(" %s\n", strerror(errno));
  const int fd = signalfd(-1, &trap, SFD_CLOEXEC);
  make_faults();
  struct pollfd waiting = {.fd = fd, .events = POLLIN};
  printf("signalfd %d poll %d\n", fd, poll(&waiting, 1, 0));
  raise(SIGTRAP);
  struct signalfd_siginfo reported;
  memset(&reported, 0, sizeof reported);
  const ssize_t size = read(fd, &reported, sizeof reported);
  printf("read %zd signal %u code %d\n", size, reported.ssi_signo, reported.ssi_code);
  return 0;
}

// What a new image inherits: print it from there.
static int inherit(char** arguments) {
  say_mask("new image");
  say("new image");
  const char* step = arguments[2];
  if (step == NULL) step = "0";
  sigset_t all;
  sigfillset(&all);
  if (strcmp(step, "0") == 0) {
    sigprocmask(SIG_BLOCK, &all, NULL);
    make_faults();
    raise(SIGTRAP);
    fflush(stdout);
    execl("/proc/self/exe", arguments[0], "inherit", "1", NULL);
  } else if (strcmp(step, "1") == 0) {
    signal(SIGTRAP, SIG_IGN);
    sigprocmask(SIG_UNBLOCK, &all, NULL);
    make_faults();
    fflush(stdout);
    execl("/no/such/program", "x", NULL);
    say_mask("exec failed");
    make_faults();
    fflush(stdout);
    execl("/proc/self/exe", arguments[0], "inherit", "2", NULL);
  }
  make_faults();
  return 0;
}

static int die(const char* how) {
  make_faults();
  if (strcmp(how, "raise") == 0) raise(SIGTRAP);
  if (strcmp(how, "kill") == 0) kill(getpid(), SIGTRAP);
  if (strcmp(how, "int3") == 0) __asm__ volatile("int3");
  if (strcmp(how, "blocked_int3") == 0) {
    sigset_t all;
    sigfillset(&all);
    signal(SIGTRAP, plain);
    sigprocmask(SIG_BLOCK, &all, NULL);
    __asm__ volatile("int3");
  }
  if (strcmp(how, "ignored_int3") == 0) {
    signal(SIGTRAP, SIG_IGN);
    raise(SIGTRAP);
    __asm__ volatile("int3");
  }
  if (strcmp(how, "once") == 0) {
    sysv_signal(SIGTRAP, plain);
    raise(SIGTRAP);
    raise(SIGTRAP);
  }
  printf("alive\n");
  return 0;
}

/* As Chromium does in each process that it forks, before anything else: all actions by the system call itself. */
static int raw(void) {
  struct {
    void (*handler)(int);
    unsigned long flags, restorer, mask;
  } action = {plain, 0, 0, 0}, before = {NULL, 1, 1, 1};
  long got = syscall(SYS_rt_sigaction, SIGTRAP, NULL, &before, 8);
  printf("before: %ld %s %lx %lx\n", got, name_of(before.handler), before.flags, before.mask);
  got = syscall(SYS_rt_sigaction, SIGTRAP, &action, &before, 8);
  printf("plain: %ld %s\n", got, name_of(before.handler));
  got = syscall(SYS_rt_sigaction, SIGTRAP, NULL, (void*)8, 8);
  printf("nowhere: %ld %d\n", got, errno);
  got = syscall(SYS_rt_sigaction, SIGTRAP, (void*)8, NULL, 8);
  printf("from nowhere: %ld %d\n", got, errno);
  got = syscall(SYS_rt_sigaction, SIGTRAP, NULL, NULL, 16);
  printf("of another size: %ld %d\n", got, errno);
  say("raw");
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    action.handler = SIG_DFL;
    for (int signal = 1; signal < 32; ++signal)
      if (signal != SIGKILL && signal != SIGSTOP) syscall(SYS_rt_sigaction, signal, &action, NULL, 8);
    for (int i = 0; i < 200; ++i) make_faults();
    unsigned long all = ~0UL, old = 1;
    got = syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, &old, 8);
    printf("blocked: %ld %lx\n", got, old);
    for (int i = 0; i < 200; ++i) make_faults();
    got = syscall(SYS_rt_sigprocmask, SIG_SETMASK, &old, NULL, 8);
    for (int i = 0; i < 200; ++i) make_faults();
    printf("unblocked: %ld\n", got);
    exit(3);
  }
  int status = 0;
  waitpid(child, &status, 0);
  printf("child: %x\n", status);
  return 0;
}

int main(int argument_count, char** arguments) {
  const char* what = argument_count > 1 ? arguments[1] : "";
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (strcmp(what, "handlers") == 0) return handlers();
  if (strcmp(what, "masks") == 0) return masks();
  if (strcmp(what, "raw") == 0) return raw();
  if (strcmp(what, "wait") == 0) return wait_for_it();
  if (strcmp(what, "inherit") == 0) return inherit(arguments);
  if (strcmp(what, "die") == 0 && argument_count > 2) return die(arguments[2]);
  return 2;
}
