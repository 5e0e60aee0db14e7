#include "shim/sys/loaded_images.h"

#include <linux/prctl.h>
#include <sys/syscall.h>

#include <array>
#include <atomic>
#include <cstring>

#include "shim/sys/raw_io.h"

namespace whyrss::shim {
namespace {

constexpr long kGetAuxiliaryVector = 0x41555856;  // PR_GET_AUXV, Linux 6.4

// _DYNAMIC: the dynamic section of this library, by the linker.
bool has_own_image(const link_map* first) noexcept {
  for (const link_map* image = first; image != nullptr; image = image->l_next)
    if (image->l_ld == _DYNAMIC) return true;
  return false;
}

// What the kernel gave the program at its start (getauxval(3), which a program may define itself).
std::uint64_t auxiliary_value(std::uint64_t type) noexcept {
  std::array<Elf64_auxv_t, 64> values{};
  const long reported = raw_syscall(SYS_prctl, kGetAuxiliaryVector, as_long(values.data()), sizeof(values));
  if (is_raw_error(reported)) read_file("/proc/self/auxv", {reinterpret_cast<char*>(values.data()), sizeof(values)});
  for (const Elf64_auxv_t& value : values)
    if (value.a_type == type) return value.a_un.a_val;
  return 0;
}

// The list as the loader shows it to debuggers (DT_DEBUG of the program), nullptr: not found.
const link_map* list_of_program() noexcept {
  const std::span<const Elf64_Phdr> segments = program_segments();
  std::uint64_t bias = 0;
  for (const Elf64_Phdr& segment : segments)
    if (segment.p_type == PT_PHDR) bias = reinterpret_cast<std::uint64_t>(segments.data()) - segment.p_vaddr;
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type != PT_DYNAMIC) continue;
    const auto* entry = reinterpret_cast<const Elf64_Dyn*>(bias + segment.p_vaddr);
    for (; entry->d_tag != DT_NULL; ++entry)
      if (entry->d_tag == DT_DEBUG && entry->d_un.d_ptr != 0)
        return reinterpret_cast<const r_debug*>(entry->d_un.d_ptr)->r_map;
  }
  return nullptr;
}

bool is_libc(const SymbolTable& symbols) noexcept {
  const std::string_view name(symbols.library_name());
  return name == "libc.so.6" || name == "ld-linux-x86-64.so.2" || name == "libpthread.so.0" || name == "libdl.so.2";
}

struct LateSymbol {
  const char* name;
  Symbol found;
};

int keep_late_symbol(dl_phdr_info* image, std::size_t, void* data) noexcept {
  auto& late = *static_cast<LateSymbol*>(data);
  for (const Elf64_Phdr& segment : std::span(image->dlpi_phdr, image->dlpi_phnum)) {
    if (segment.p_type != PT_DYNAMIC) continue;
    const SymbolTable symbols(reinterpret_cast<const Elf64_Dyn*>(image->dlpi_addr + segment.p_vaddr), image->dlpi_addr);
    if (is_libc(symbols)) late.found = symbols.find(late.name);
  }
  return late.found.address != nullptr ? 1 : 0;
}

struct Holder {
  std::uint64_t address;
  ImageName image;
};

int keep_holder(dl_phdr_info* image, std::size_t, void* data) noexcept {
  auto& holder = *static_cast<Holder*>(data);
  for (std::size_t i = 0; i < image->dlpi_phnum; ++i) {
    const Elf64_Phdr& segment = image->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || holder.address - image->dlpi_addr - segment.p_vaddr >= segment.p_memsz) continue;
    holder.image = {.bias = image->dlpi_addr, .path = image->dlpi_name};
    return 1;
  }
  return 0;
}

}  // namespace

std::span<const Elf64_Phdr> program_segments() noexcept {
  const auto* segments = reinterpret_cast<const Elf64_Phdr*>(auxiliary_value(AT_PHDR));
  return segments == nullptr ? std::span<const Elf64_Phdr>() : std::span(segments, auxiliary_value(AT_PHNUM));
}

// Another image's variable of this name is not the loader's: then our own image is not in its list.
const link_map* first_image() noexcept {
  static constinit std::atomic<const link_map*> first{nullptr};  // who finds it at the same time finds the same
  if (const link_map* known = first.load(std::memory_order_acquire); known != nullptr) return known;
  const link_map* found = _r_debug.r_map;
  if (!has_own_image(found)) found = list_of_program();
  if (!has_own_image(found)) return nullptr;
  first.store(found, std::memory_order_release);
  return found;
}

const link_map* own_image() noexcept {
  const link_map* image = first_image();
  while (image != nullptr && image->l_ld != _DYNAMIC) image = image->l_next;
  return image;
}

SymbolTable symbols_of(const link_map& image) noexcept { return {image.l_ld, image.l_addr}; }

Symbol find_in_program(const char* name) noexcept {
  for (const link_map* image = first_image(); image != nullptr; image = image->l_next)
    if (const Symbol found = symbols_of(*image).find(name); found.address != nullptr) return found;
  return {};
}

Symbol find_after_us(const char* name) noexcept {
  const link_map* own = own_image();
  for (const link_map* image = own != nullptr ? own->l_next : nullptr; image != nullptr; image = image->l_next)
    if (const Symbol found = symbols_of(*image).find(name); found.address != nullptr) return found;
  return {};
}

Symbol find_in_libc(const char* name) noexcept {
  for (const link_map* image = first_image(); image != nullptr; image = image->l_next) {
    const SymbolTable symbols = symbols_of(*image);
    if (!is_libc(symbols)) continue;
    if (const Symbol found = symbols.find(name); found.address != nullptr) return found;
  }
  return {};
}

Symbol find_late_in_libc(const char* name) noexcept {
  LateSymbol late{.name = name, .found = {}};
  dl_iterate_phdr(keep_late_symbol, &late);
  return late.found;
}

ImageName image_name_at(const void* address) noexcept {
  Holder holder{.address = reinterpret_cast<std::uint64_t>(address), .image = {}};
  dl_iterate_phdr(keep_holder, &holder);
  return holder.image;
}

}  // namespace whyrss::shim
