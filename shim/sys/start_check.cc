#include "shim/sys/start_check.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <linux/perf_event.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include <array>
#include <atomic>
#include <span>

#include "shim/sys/raw_io.h"

namespace whyrss::shim {
namespace {

struct Call {
  long number, a1, a2, a3, a4, a5;
};

// What the library asks of the kernel from here on, in forms that change nothing. Not what the loader does too (open,
// read, map, protect). Without the last two all else goes on.
struct Probes {
  timespec no_time{};
  std::array<long, 64> answer{};
  std::uint32_t word = 0;
  perf_event_attr event{};
  std::array<Call, 29> needed{};
  Call event_call{}, copy_call{};

  Probes() noexcept {
    event.size = sizeof(event);
    event.type = PERF_TYPE_SOFTWARE;
    event.config = PERF_COUNT_SW_PAGE_FAULTS;
    event.exclude_kernel = 1;
    event.disabled = 1;
    const long nowhere = -1;
    const long buffer = as_long(answer.data());
    constexpr long kSetVma = 0x53564d41;                        // PR_SET_VMA of Linux 5.17
    constexpr long kGetPermitted = 0x1022, kGetCpuid = 0x1011;  // ARCH_GET_XCOMP_PERM of Linux 5.16, ARCH_GET_CPUID
    needed = {{{SYS_lseek, nowhere, 0, 0, 0, 0},
               {SYS_pread64, nowhere, buffer, 0, 0, 0},
               {SYS_madvise, 0, 0, MADV_DONTDUMP, 0, 0},
               {SYS_madvise, 0, 0, MADV_WIPEONFORK, 0, 0},
               {SYS_prctl, PR_GET_SECCOMP, 0, 0, 0, 0},
               {SYS_prctl, kSetVma, 0, 0, 0, 0},
               {SYS_prctl, PR_GET_TSC, buffer, 0, 0, 0},
               {SYS_getpid, 0, 0, 0, 0, 0},
               {SYS_getppid, 0, 0, 0, 0, 0},
               {SYS_gettid, 0, 0, 0, 0, 0},
               {SYS_getrandom, buffer, 0, 0, 0, 0},
               {SYS_getcwd, buffer, 0, 0, 0, 0},
               {SYS_readlink, as_long("/proc/self/exe"), buffer, 1, 0, 0},
               {SYS_access, as_long("/"), 0, 0, 0, 0},
               {SYS_getdents64, nowhere, buffer, 0, 0, 0},
               {SYS_fstatfs, nowhere, buffer, 0, 0, 0},
               {SYS_fstat, nowhere, buffer, 0, 0, 0},
               {SYS_ioctl, nowhere, 0, 0, 0, 0},
               {SYS_uname, buffer, 0, 0, 0, 0},
               {SYS_getrusage, 0, buffer, 0, 0, 0},
               {SYS_clock_gettime, CLOCK_MONOTONIC, as_long(&no_time), 0, 0, 0},
               {SYS_futex, as_long(&word), FUTEX_WAKE, 0, 0, 0},
               {SYS_nanosleep, 0, 0, 0, 0, 0},
               {SYS_sigaltstack, 0, 0, 0, 0, 0},
               {SYS_arch_prctl, kGetPermitted, buffer, 0, 0, 0},
               {SYS_arch_prctl, kGetCpuid, 0, 0, 0, 0},
               {SYS_rt_sigaction, 5, 0, buffer, 8, 0},
               {SYS_rt_sigprocmask, 0, 0, buffer, 8, 0},
               {SYS_rt_sigpending, buffer, 8, 0, 0, 0}}};
    event_call = {SYS_perf_event_open, as_long(&event), 0, nowhere, nowhere, 0};
    copy_call = {SYS_process_vm_writev, 0, 0, 0, 0, 0};
  }
};

// Whether a child survives them. It shares our memory and our stack, keeps what it needs in registers, and its
// descriptors are its own.
bool survives(std::span<const Call> calls) noexcept {
  constexpr long kFlags = 0x4100;  // CLONE_VM | CLONE_VFORK; no signal at its end
  long child = SYS_clone;
  volatile std::uint64_t survived = 0;
  register long r10 __asm__("r10") = 0;
  register long r8 __asm__("r8") = 0;
  register const Call* call __asm__("r12") = calls.data();
  register std::uint64_t count __asm__("r13") = calls.size();
  __asm__ volatile(
      "syscall\n\t"
      "testq %%rax, %%rax\n\t"
      "jnz 2f\n\t"
      "1: movq (%[call]), %%rax\n\t"
      "movq 8(%[call]), %%rdi\n\t"
      "movq 16(%[call]), %%rsi\n\t"
      "movq 24(%[call]), %%rdx\n\t"
      "movq 32(%[call]), %%r10\n\t"
      "movq 40(%[call]), %%r8\n\t"
      "syscall\n\t"
      "incq (%[survived])\n\t"
      "addq $48, %[call]\n\t"
      "decq %[count]\n\t"
      "jnz 1b\n\t"
      "xorl %%edi, %%edi\n\t"
      "movl %[exit], %%eax\n\t"
      "syscall\n\t"
      "2:"
      : "+a"(child), "+r"(r10), "+r"(r8)
      : "D"(kFlags), "S"(0L),
        "d"(0L), [survived] "b"(&survived), [call] "r"(call), [count] "r"(count), [exit] "i"(SYS_exit_group)
      : "rcx", "r11", "memory");
  static_assert(sizeof(Call) == 48);
  if (is_raw_error(child)) return false;
  int status = -1;
  while (raw_syscall(SYS_wait4, child, as_long(&status), __WALL, 0) == -EINTR) {
  }
  return survived == calls.size();
}

std::uint64_t status_number(std::string_view status, std::string_view key) noexcept {
  const std::size_t at = status.find(key);
  if (at == std::string_view::npos) return 0;
  status.remove_prefix(at + key.size());
  return take_number(status);
}

struct Findings {
  bool known, traced, deadly, event_deadly, copy_deadly;
  std::uint64_t seccomp;
};
constinit Findings g_found{};  // by the first thread, before there is another

const Findings& find() noexcept {
  if (g_found.known) return g_found;
  std::array<char, 2048> text;
  const std::string_view status = read_file("/proc/self/status", text);
  g_found.traced = status_number(status, "\nTracerPid:\t") != 0;
  g_found.seccomp = status_number(status, "\nSeccomp:\t");
  if (g_found.seccomp == SECCOMP_MODE_FILTER) {
    const Probes probes;
    g_found.deadly = !survives(probes.needed);
    g_found.event_deadly = g_found.deadly || !survives(std::span(&probes.event_call, 1));
    g_found.copy_deadly = g_found.deadly || !survives(std::span(&probes.copy_call, 1));
  }
  g_found.known = true;
  return g_found;
}

}  // namespace

std::string_view reason_against_start() noexcept {
  return find().deadly ? "a seccomp filter kills for system calls that tracing needs (tracing is off)" : "";
}

bool is_event_deadly() noexcept { return find().event_deadly; }

bool is_copy_deadly() noexcept { return find().copy_deadly; }

bool is_traced() noexcept { return find().traced; }

bool has_new_seccomp_filter() noexcept {
  return static_cast<std::uint64_t>(own_syscall(SYS_prctl, PR_GET_SECCOMP)) != find().seccomp;
}

}  // namespace whyrss::shim
