#include "shim/sys/vdso.h"

#include <elf.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <array>

#include "shim/sys/raw_io.h"
#include "shim/trace/clock.h"

namespace whyrss::shim {
namespace {

// vdso(7): an ELF image in memory, whose section headers are mapped with it.
const void* find_in_vdso(std::string_view name) noexcept {
  const unsigned long base = getauxval(AT_SYSINFO_EHDR);
  if (base == 0) return nullptr;
  const auto* image = reinterpret_cast<const Elf64_Ehdr*>(base);
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(base + image->e_shoff);
  for (unsigned i = 0; image->e_shoff != 0 && i < image->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_DYNSYM || sections[i].sh_link >= image->e_shnum) continue;
    const auto* symbols = reinterpret_cast<const Elf64_Sym*>(base + sections[i].sh_offset);
    const auto* names = reinterpret_cast<const char*>(base + sections[sections[i].sh_link].sh_offset);
    for (unsigned long k = 0; k < sections[i].sh_size / sizeof(Elf64_Sym); ++k)
      if (symbols[k].st_shndx != SHN_UNDEF && name == names + symbols[k].st_name)
        return reinterpret_cast<const void*>(base + symbols[k].st_value);
  }
  return nullptr;
}

}  // namespace

void start_clock() noexcept {
  int counter = 0;
  const bool known = !is_raw_error(own_syscall(SYS_prctl, PR_GET_TSC, as_long(&counter)));
  if (known && counter == PR_TSC_SIGSEGV) return;
  const auto read = reinterpret_cast<std::uintptr_t>(find_in_vdso("__vdso_clock_gettime"));
  trace::use_vdso(reinterpret_cast<trace::ReadClock>(read));
}

bool is_clock_in_vdso() noexcept {
  if (trace::g_clock.read.load(std::memory_order_relaxed) == nullptr) return false;
  std::array<char, 64> text{};
  const std::string_view source = read_file("/sys/devices/system/clocksource/clocksource0/current_clocksource", text);
  return source == "tsc\n" || source == "kvm-clock\n" || source == "hyperv_clocksource_tsc_page\n";
}

}  // namespace whyrss::shim
