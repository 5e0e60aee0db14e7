// A program that forbids itself system calls or the time stamp counter, and goes on as a sandboxed worker would:
//   restricted strict|strict-by-syscall|filter-ssh|filter-service|tsc|tsc-by-syscall WORK[,WORK...] END
// WORK: heap, map, fork, vfork, threads, reads, signals; END: raw (the thread's exit call), exit, _exit, return, abort.
// Prints what it has computed. Exit status 3: nobody may restrict himself so here.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kMostRules = 80 };
static struct sock_filter g_rules[4 * kMostRules];
static unsigned short g_rule_count;

static void add(unsigned code, unsigned operand, unsigned char taken, unsigned char skipped) {
  g_rules[g_rule_count++] =
      (struct sock_filter){.code = (unsigned short)code, .jt = taken, .jf = skipped, .k = operand};
}

static void allow(unsigned number) {
  add(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1);
  add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
}

// Only with that argument.
static void allow_with(unsigned number, unsigned argument, unsigned value) {
  add(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 4);
  add(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args) + 8 * argument, 0, 0);
  add(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1);
  add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
  add(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS, 0, 0);
}

static void begin_filter(void) {
  add(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch), 0, 0);
  add(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0);
  add(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS, 0, 0);
  add(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0, 0);
}

static int install(unsigned flags) {
  add(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS, 0, 0);
  const struct sock_fprog program = {.len = g_rule_count, .filter = g_rules};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
  return flags != 0 ? (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program)
                    : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

// As OpenSSH's sandbox of its unprivileged process: what a worker with an open connection needs.
static int filter_as_ssh(void) {
  begin_filter();
  const unsigned allowed[] = {SYS_read,   SYS_write,  SYS_close, SYS_brk,
                              SYS_munmap, SYS_mremap, SYS_exit,  SYS_exit_group};
  for (size_t i = 0; i < sizeof allowed / sizeof *allowed; ++i) allow(allowed[i]);
  allow_with(SYS_mmap, 3, MAP_PRIVATE | MAP_ANONYMOUS);
  return install(0);
}

// As a service manager's list for services: processes, threads and signals, but nothing for debuggers.
static int filter_as_service(void) {
  begin_filter();
  const unsigned allowed[] = {SYS_read,
                              SYS_write,
                              SYS_close,
                              SYS_brk,
                              SYS_mmap,
                              SYS_munmap,
                              SYS_mremap,
                              SYS_mprotect,
                              SYS_clone,
                              SYS_clone3,
                              SYS_vfork,
                              SYS_wait4,
                              SYS_futex,
                              SYS_set_robust_list,
                              SYS_rseq,
                              SYS_rt_sigprocmask,
                              SYS_rt_sigaction,
                              SYS_rt_sigreturn,
                              SYS_exit,
                              SYS_exit_group,
                              SYS_openat,
                              SYS_newfstatat,
                              SYS_tgkill,
                              SYS_kill,
                              SYS_execve,
                              SYS_access,
                              SYS_pread64,
                              SYS_arch_prctl,
                              SYS_set_tid_address,
                              SYS_prlimit64,
                              SYS_getrandom};
  for (size_t i = 0; i < sizeof allowed / sizeof *allowed; ++i) allow(allowed[i]);
  allow_with(SYS_madvise, 2, MADV_DONTNEED);
  return install(SECCOMP_FILTER_FLAG_TSYNC);
}

static int restrict_by(const char* how) {
  if (strcmp(how, "strict") == 0) return prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0);
  if (strcmp(how, "strict-by-syscall") == 0) return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, NULL);
  if (strcmp(how, "filter-ssh") == 0) return filter_as_ssh();
  if (strcmp(how, "filter-service") == 0) return filter_as_service();
  if (strcmp(how, "tsc") == 0) return prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0);
  if (strcmp(how, "tsc-by-syscall") == 0) return (int)syscall(SYS_prctl, PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0);
  return strcmp(how, "nothing") == 0 ? 0 : -1;
}

static uint64_t g_sum = 1469598103934665603u;

static void mix(uint64_t value) { g_sum = (g_sum ^ value) * 1099511628211u; }

enum { kBlocks = 2000 };
static void* g_blocks[kBlocks];

static void work_on_heap(void) {
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < kBlocks; ++i) {
      const size_t size = 16 + (size_t)(i * 37 + round * 11) % 700;
      g_blocks[i] = malloc(size);
      memset(g_blocks[i], i, size);
    }
    for (int i = 0; i < kBlocks; i += 3) g_blocks[i] = realloc(g_blocks[i], 900);
    for (int i = 0; i < kBlocks; ++i) {
      mix(((unsigned char*)g_blocks[i])[7]);
      free(g_blocks[i]);
    }
  }
}

static void work_on_maps(void) {
  for (int i = 0; i < 50; ++i) {
    const size_t size = (size_t)(1 + i % 9) * 65536;
    char* memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) abort();
    memset(memory, i, size);
    mix((unsigned char)memory[size - 1]);
    munmap(memory, size);
    void* large = malloc(200000 + (size_t)i);
    memset(large, i, 200000);
    free(large);
  }
}

static void* in_thread(void* argument) {
  uint64_t* sum = argument;
  for (int i = 0; i < 3000; ++i) {
    void* block = malloc(24 + (size_t)(i % 300));
    memset(block, i, 24);
    *sum += ((unsigned char*)block)[3];
    free(block);
  }
  return NULL;
}

static void work_in_threads(void) {
  pthread_t threads[4];
  uint64_t sums[4] = {0};
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 4; ++i)
      if (pthread_create(&threads[i], NULL, in_thread, &sums[i]) != 0) abort();
    for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
  }
  for (int i = 0; i < 4; ++i) mix(sums[i]);
}

static void work_in_children(void) {
  for (int i = 0; i < 3; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      work_on_heap();
      work_on_maps();
      _exit((int)(g_sum % 97));
    }
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) != child) abort();
    mix((uint64_t)status);
  }
}

static void work_in_vfork_children(void) {
  for (int i = 0; i < 3; ++i) {
    const pid_t child = vfork();
    if (child == 0) _exit(i);
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) != child) abort();
    mix((uint64_t)status);
  }
}

static int g_zeros = -1;

static void work_on_reads(void) {
  char* memory = malloc(100000);
  for (int i = 0; i < 40; ++i) {
    if (read(g_zeros, memory, 100000) != 100000) abort();
    mix((unsigned char)memory[i]);
  }
  free(memory);
}

static volatile sig_atomic_t g_signals;

static void on_signal(int number) {
  (void)number;
  free(malloc(30));
  ++g_signals;
}

static void work_on_signals(void) {
  sigset_t traps, before;
  sigemptyset(&traps);
  sigaddset(&traps, SIGTRAP);
  for (int i = 0; i < 5; ++i) {
    sigprocmask(SIG_BLOCK, &traps, &before);
    free(malloc(50));
    sigprocmask(SIG_SETMASK, &before, NULL);
    signal(SIGTRAP, on_signal);
    signal(SIGUSR1, on_signal);
    signal(SIGTRAP, SIG_DFL);
  }
  mix((uint64_t)g_signals);
}

static void print_sum(void) {
  char line[40] = "sum 0000000000000000\n";
  for (int i = 0; i < 16; ++i) line[19 - i] = "0123456789abcdef"[g_sum >> (4 * i) & 15];
  if (write(1, line, 21) != 21) abort();
}

static void work_on(char* works) {
  char* rest = NULL;
  for (const char* work = strtok_r(works, ",", &rest); work != NULL; work = strtok_r(NULL, ",", &rest)) {
    if (strcmp(work, "heap") == 0) work_on_heap();
    if (strcmp(work, "map") == 0) work_on_maps();
    if (strcmp(work, "threads") == 0) work_in_threads();
    if (strcmp(work, "fork") == 0) work_in_children();
    if (strcmp(work, "vfork") == 0) work_in_vfork_children();
    if (strcmp(work, "reads") == 0) work_on_reads();
    if (strcmp(work, "signals") == 0) work_on_signals();
    print_sum();
  }
}

static int end_by(const char* how) {
  if (strcmp(how, "raw") == 0) __asm__ volatile("syscall" ::"a"(SYS_exit), "D"(5L) : "rcx", "r11", "memory");
  if (strcmp(how, "exit") == 0) exit(6);
  if (strcmp(how, "_exit") == 0) _exit(7);
  if (strcmp(how, "abort") == 0) abort();
  if (strcmp(how, "again") == 0) {
    char* const words[] = {"/proc/self/exe", "nothing", "heap", "return", NULL};
    execv(words[0], words);
    return 9;
  }
  return 8;
}

int main(int word_count, char** words) {
  if (word_count != 4) return 2;
  // What the heap needs later it has from here on: no brk in strict mode.
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
  mallopt(M_MMAP_THRESHOLD, 16 << 20);
  void* warm = malloc(8 << 20);
  memset(warm, 1, 8 << 20);
  free(warm);
  work_on_heap();
  g_zeros = open("/dev/zero", O_RDONLY | O_CLOEXEC);
  if (restrict_by(words[1]) != 0) return 3;
  work_on(words[2]);
  return end_by(words[3]);
}
