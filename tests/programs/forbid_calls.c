// A program under a seccomp filter, as containers have it: forbid_calls eperm|enosys|kill CALL[,CALL...] PROGRAM...
// The filter is inherited by all that PROGRAM starts. Exit status 3: nobody may install a filter here.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
  const char* name;
  unsigned number;
} kCalls[] = {{"perf_event_open", SYS_perf_event_open},
              {"userfaultfd", SYS_userfaultfd},
              {"process_madvise", SYS_process_madvise},
              {"process_vm_readv", SYS_process_vm_readv},
              {"process_vm_writev", SYS_process_vm_writev},
              {"kcmp", SYS_kcmp},
              {"memfd_create", SYS_memfd_create}};
enum { kCallCount = sizeof kCalls / sizeof *kCalls };

static struct sock_filter statement(unsigned code, unsigned operand) {
  return (struct sock_filter){.code = (unsigned short)code, .k = operand};
}

static struct sock_filter unless_equal(unsigned operand, unsigned char skipped) {
  return (struct sock_filter){.code = BPF_JMP | BPF_JEQ | BPF_K, .jf = skipped, .k = operand};
}

static int number_of(const char* name) {
  for (int i = 0; i < kCallCount; ++i)
    if (strcmp(kCalls[i].name, name) == 0) return (int)kCalls[i].number;
  return -1;
}

static int usage(void) {
  fputs("usage: forbid_calls eperm|enosys|kill CALL[,CALL...] PROGRAM...\n", stderr);
  return 2;
}

int main(int word_count, char** words) {
  if (word_count < 4) return usage();
  unsigned action = 0;
  if (strcmp(words[1], "eperm") == 0) action = SECCOMP_RET_ERRNO | EPERM;
  if (strcmp(words[1], "enosys") == 0) action = SECCOMP_RET_ERRNO | ENOSYS;
  if (strcmp(words[1], "kill") == 0) action = SECCOMP_RET_KILL_PROCESS;
  if (action == 0) return usage();

  struct sock_filter filter[5 + 2 * kCallCount];
  unsigned short count = 0;
  // 32-bit calls have other numbers: let through.
  filter[count++] = statement(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
  filter[count++] = (struct sock_filter){.code = BPF_JMP | BPF_JEQ | BPF_K, .jt = 1, .k = AUDIT_ARCH_X86_64};
  filter[count++] = statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  filter[count++] = statement(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
  for (const char* name = strtok(words[2], ","); name != NULL; name = strtok(NULL, ",")) {
    const int number = number_of(name);
    if (number < 0 || count + 3 > (int)(sizeof filter / sizeof *filter)) return usage();
    filter[count++] = unless_equal((unsigned)number, 1);
    filter[count++] = statement(BPF_RET | BPF_K, action);
  }
  filter[count++] = statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);

  const struct sock_fprog program = {.len = count, .filter = filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    perror("forbid_calls: no seccomp");
    return 3;
  }
  execvp(words[3], words + 3);
  perror(words[3]);
  return 127;
}
