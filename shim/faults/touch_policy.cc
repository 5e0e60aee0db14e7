#include "shim/faults/touch_policy.h"

#include <elf.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>

#include "shim/events/settings.h"
#include "shim/sys/raw_io.h"
#include "shim/sys/start_check.h"

namespace whyrss::shim {
namespace {

// Before 5.18 a SIGTRAP of an event that met a blocked one killed the process (fixed by Linux 78ed93d72ded).
bool is_kernel_too_old() noexcept {
  utsname system{};
  if (is_raw_error(own_syscall(SYS_uname, as_long(&system)))) return true;
  std::string_view release(system.release);
  const std::uint64_t major = take_number(release);
  if (release.empty()) return true;
  release.remove_prefix(1);
  return major < 5 || (major == 5 && take_number(release) < 18);
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
  const long size = own_syscall(SYS_readlink, as_long("/proc/self/exe"), as_long(path.data()), path.size());
  if (!is_raw_error(size)) {
    const std::string_view exe(path.data(), static_cast<std::size_t>(size));
    if (exe.ends_with("/java") || exe.ends_with("/dotnet")) return true;
  }
  return dl_iterate_phdr(is_managed_runtime, nullptr) != 0;
}

}  // namespace

std::string_view reason_against_touch(const char* const* environment) noexcept {
  if (is_kernel_too_old()) return "page-fault signals are safe from Linux 5.18 on";
  // It sees every SIGTRAP, and takes it for its own.
  if (is_traced()) return "a debugger or tracer is attached, which takes SIGTRAP for its own";
  if (is_under_valgrind(environment)) return "the program runs under valgrind";
  if (is_go_program()) return "Go programs handle signals on stacks of their own";
  if (is_managed_program()) return "Java and .NET handle signals in ways of their own";
  return {};
}

}  // namespace whyrss::shim
