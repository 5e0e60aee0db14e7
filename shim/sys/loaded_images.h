// The images that the loader has put into this process, in the order in which it searches for symbols: the program, the
// preloaded libraries, what they need; then what came by dlopen().
// Reads the loader's list without its lock: safe before main and in the constructor, and later for names that were
// found then. What must be right later asks dl_iterate_phdr().
#pragma once

#include <link.h>

#include <span>

#include "shim/sys/symbol_table.h"

namespace whyrss::shim {

// nullptr: the loader's list was not found.
const link_map* first_image() noexcept;
// This library.
const link_map* own_image() noexcept;

// The program headers of the program itself, by what the kernel gave it; empty: not known.
std::span<const Elf64_Phdr> program_segments() noexcept;

SymbolTable symbols_of(const link_map& image) noexcept;

// What dlsym(RTLD_DEFAULT) finds.
Symbol find_in_program(const char* name) noexcept;
// What dlsym(RTLD_NEXT) finds from here.
Symbol find_after_us(const char* name) noexcept;
// What libc defines, even if others do too: also the loader's and, before glibc 2.34, libpthread's and libdl's.
Symbol find_in_libc(const char* name) noexcept;
// The same of libraries that may have been loaded later. Takes the lock of dl_iterate_phdr().
Symbol find_late_in_libc(const char* name) noexcept;

template <class Function>
bool set_found(Function*& function, const Symbol& found) noexcept {
  if (found.address != nullptr) function = reinterpret_cast<Function*>(found.address);
  return found.address != nullptr;
}

// Address and name of the image whose segments hold `address`; {} when none does. Takes the lock of dl_iterate_phdr().
struct ImageName {
  std::uint64_t bias = 0;
  const char* path = nullptr;  // as the loader has it ("" for the program), for as long as the image is loaded
};
ImageName image_name_at(const void* address) noexcept;

}  // namespace whyrss::shim
