#include "shim/touch_policy.h"

#include <elf.h>
#include <link.h>
#include <linux/perf_event.h>
#include <linux/seccomp.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "shim/raw_io.h"
#include "shim/settings.h"

namespace whyrss::shim {
namespace {

constinit long g_seccomp_at_start = 0;

// Before 5.18 a SIGTRAP of an event that met a blocked one killed the process (fixed by Linux 78ed93d72ded).
bool is_kernel_too_old() noexcept {
  utsname system{};
  if (is_raw_error(raw_syscall(SYS_uname, as_long(&system)))) return true;
  std::string_view release(system.release);
  const std::uint64_t major = take_number(release);
  if (release.empty()) return true;
  release.remove_prefix(1);
  return major < 5 || (major == 5 && take_number(release) < 18);
}

// A debugger sees every SIGTRAP, and takes it for its own.
bool is_traced() noexcept {
  std::array<char, 2048> text;
  const std::string_view status = read_file("/proc/self/status", text);
  constexpr std::string_view kKey = "\nTracerPid:\t";
  const std::size_t at = status.find(kKey);
  if (at == std::string_view::npos) return false;
  std::string_view number(status.data() + at + kKey.size(), status.size() - at - kKey.size());
  return take_number(number) != 0;
}

bool is_under_valgrind(const char* const* environment) noexcept {
  const char* preload = environment_value(environment, "LD_PRELOAD");
  return preload != nullptr && std::string_view(preload).find("vgpreload") != std::string_view::npos;
}

// The linker of Go leaves a note with the build's id in every program, type 4, owner "Go". Its runtime
// handles signals by raw system calls, on stacks of its own.
bool is_go_program() noexcept {
  const auto* segments = reinterpret_cast<const Elf64_Phdr*>(getauxval(AT_PHDR));
  const unsigned long count = getauxval(AT_PHNUM);
  if (segments == nullptr) return false;
  std::uint64_t bias = 0;
  for (unsigned long i = 0; i < count; ++i)
    if (segments[i].p_type == PT_PHDR) bias = reinterpret_cast<std::uint64_t>(segments) - segments[i].p_vaddr;
  for (unsigned long i = 0; i < count; ++i) {
    if (segments[i].p_type != PT_NOTE) continue;
    std::uint64_t at = bias + segments[i].p_vaddr;
    const std::uint64_t end = at + segments[i].p_memsz;
    while (at + sizeof(Elf64_Nhdr) + 4 <= end) {
      const auto* note = reinterpret_cast<const Elf64_Nhdr*>(at);
      const auto* owner = reinterpret_cast<const char*>(note + 1);
      if (note->n_type == 4 && note->n_namesz >= 3 && std::memcmp(owner, "Go", 3) == 0) return true;
      at += sizeof(Elf64_Nhdr) + ((note->n_namesz + 3ULL) & ~3ULL) + ((note->n_descsz + 3ULL) & ~3ULL);
    }
  }
  return false;
}

// Runtimes that use signals and stacks in ways of their own: their launchers are linked with these, or are
// called so.
int is_managed_runtime(dl_phdr_info* image, std::size_t, void*) noexcept {
  const std::string_view path(image->dlpi_name != nullptr ? image->dlpi_name : "");
  for (const std::string_view library : {"libjvm.so", "libjli.so", "libcoreclr.so", "libhostfxr.so"})
    if (path.find(library) != std::string_view::npos) return 1;
  return 0;
}

bool is_managed_program() noexcept {
  std::array<char, 512> path{};
  const long size = raw_syscall(SYS_readlink, as_long("/proc/self/exe"), as_long(path.data()), path.size());
  if (!is_raw_error(size)) {
    const std::string_view exe(path.data(), static_cast<std::size_t>(size));
    if (exe.ends_with("/java") || exe.ends_with("/dotnet")) return true;
  }
  return dl_iterate_phdr(is_managed_runtime, nullptr) != 0;
}

// Whether a child survives the call: a filter may kill for it. The child shares our memory and our stack, and
// makes two system calls in registers; its descriptors are its own.
bool is_perf_call_deadly() noexcept {
  perf_event_attr attributes{};
  attributes.size = sizeof(attributes);
  attributes.type = PERF_TYPE_SOFTWARE;
  attributes.config = PERF_COUNT_SW_PAGE_FAULTS;
  attributes.exclude_kernel = 1;
  attributes.disabled = 1;
  constexpr long kFlags = 0x4100;  // CLONE_VM | CLONE_VFORK; no signal at its end
  long child = SYS_clone;
  register long r10 __asm__("r10") = 0;
  register long r8 __asm__("r8") = 0;
  __asm__ volatile(
      "syscall\n\t"
      "testq %%rax, %%rax\n\t"
      "jnz 1f\n\t"
      "movq %[attributes], %%rdi\n\t"
      "xorl %%esi, %%esi\n\t"
      "movq $-1, %%rdx\n\t"
      "movq $-1, %%r10\n\t"
      "xorl %%r8d, %%r8d\n\t"
      "movl %[perf], %%eax\n\t"
      "syscall\n\t"
      "xorl %%edi, %%edi\n\t"
      "movl %[exit], %%eax\n\t"
      "syscall\n\t"
      "1:"
      : "+a"(child), "+r"(r10), "+r"(r8)
      : "D"(kFlags), "S"(0L),
        "d"(0L), [attributes] "b"(&attributes), [perf] "i"(SYS_perf_event_open), [exit] "i"(SYS_exit_group)
      : "rcx", "r11", "memory");
  if (is_raw_error(child)) return true;
  int status = -1;
  long got = 0;
  do got = raw_syscall(SYS_wait4, child, as_long(&status), __WALL, 0);
  while (got == -EINTR);
  return got != child || status != 0;
}

}  // namespace

std::string_view reason_against_touch(const char* const* environment) noexcept {
  if (is_kernel_too_old()) return "page-fault signals are safe from Linux 5.18 on";
  if (is_traced()) return "a debugger or tracer is attached, which takes SIGTRAP for its own";
  if (is_under_valgrind(environment)) return "the program runs under valgrind";
  if (is_go_program()) return "Go programs handle signals on stacks of their own";
  if (is_managed_program()) return "Java and .NET handle signals in ways of their own";
  return {};
}

bool is_event_deadly() noexcept {
  g_seccomp_at_start = raw_syscall(SYS_prctl, PR_GET_SECCOMP);
  return g_seccomp_at_start == SECCOMP_MODE_FILTER && is_perf_call_deadly();
}

bool has_new_seccomp_filter() noexcept { return raw_syscall(SYS_prctl, PR_GET_SECCOMP) != g_seccomp_at_start; }

}  // namespace whyrss::shim
