// The dynamic symbols of one loaded image, read from the image's own tables. dlsym() is no substitute: it takes the
// loader's lock, which a thread in dlopen() can hold while it waits for a lock that our hook runs under, and a name
// that it does not find makes it allocate the text of an error, with the malloc of the program. Sources: System V gABI
// (dynamic section, DT_HASH), GNU hash section as ld and glibc have it (elf/dl-lookup.c), LSB (symbol versions).
// Threads: any; async-signal-safe, but for symbols that their image chooses at run time (STT_GNU_IFUNC).
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstdint>

namespace whyrss::shim {

// What an image defines.
struct Symbol {
  std::byte* address = nullptr;
  std::uint64_t size_bytes = 0;
};

class SymbolTable {
 public:
  SymbolTable() noexcept = default;
  // `dynamic`: the image's dynamic section in memory, nullptr: no symbols. `bias`: address - ELF vaddr.
  SymbolTable(const Elf64_Dyn* dynamic, std::uint64_t bias) noexcept;

  // The default version of a function or variable; {} when the image does not define it.
  [[nodiscard]] Symbol find(const char* name) const noexcept;
  // DT_SONAME, "" when it has none.
  [[nodiscard]] const char* library_name() const noexcept;

 private:
  [[nodiscard]] bool defines(std::uint32_t index, const char* name) const noexcept;
  [[nodiscard]] std::uint32_t find_by_gnu_hash(const char* name) const noexcept;
  [[nodiscard]] std::uint32_t find_by_elf_hash(const char* name) const noexcept;

  std::uint64_t bias_ = 0;
  std::uint64_t library_name_ = 0;  // in names_
  const Elf64_Sym* symbols_ = nullptr;
  const char* names_ = nullptr;
  const std::uint32_t* gnu_hash_ = nullptr;
  const std::uint32_t* elf_hash_ = nullptr;
  const std::uint16_t* versions_ = nullptr;
};

}  // namespace whyrss::shim
