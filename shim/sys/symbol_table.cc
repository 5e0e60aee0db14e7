#include "shim/sys/symbol_table.h"

#include <cstring>

namespace whyrss::shim {
namespace {

constexpr std::uint16_t kHiddenVersion = 0x8000;  // of a symbol that only old programs may bind to

std::uint32_t gnu_hash_of(const char* name) noexcept {
  std::uint32_t hash = 5381;
  for (; *name != '\0'; ++name) hash = hash * 33 + static_cast<unsigned char>(*name);
  return hash;
}

std::uint32_t elf_hash_of(const char* name) noexcept {
  std::uint32_t hash = 0;
  for (; *name != '\0'; ++name) {
    hash = (hash << 4) + static_cast<unsigned char>(*name);
    const std::uint32_t high = hash & 0xf0000000;
    hash = (hash ^ high >> 24) & ~high;
  }
  return hash;
}

}  // namespace

SymbolTable::SymbolTable(const Elf64_Dyn* dynamic, std::uint64_t bias) noexcept : bias_(bias) {
  for (const Elf64_Dyn* entry = dynamic; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
    // glibc has replaced these by addresses, but for the vDSO's.
    const std::uint64_t at = entry->d_un.d_ptr < bias ? entry->d_un.d_ptr + bias : entry->d_un.d_ptr;
    if (entry->d_tag == DT_SYMTAB) symbols_ = reinterpret_cast<const Elf64_Sym*>(at);
    if (entry->d_tag == DT_STRTAB) names_ = reinterpret_cast<const char*>(at);
    if (entry->d_tag == DT_GNU_HASH) gnu_hash_ = reinterpret_cast<const std::uint32_t*>(at);
    if (entry->d_tag == DT_HASH) elf_hash_ = reinterpret_cast<const std::uint32_t*>(at);
    if (entry->d_tag == DT_VERSYM) versions_ = reinterpret_cast<const std::uint16_t*>(at);
    if (entry->d_tag == DT_SONAME) library_name_ = entry->d_un.d_val;
  }
}

const char* SymbolTable::library_name() const noexcept {
  return names_ != nullptr && library_name_ != 0 ? names_ + library_name_ : "";
}

bool SymbolTable::defines(std::uint32_t index, const char* name) const noexcept {
  const Elf64_Sym& symbol = symbols_[index];
  const unsigned type = ELF64_ST_TYPE(symbol.st_info);
  if (symbol.st_shndx == SHN_UNDEF || type == STT_TLS || ELF64_ST_BIND(symbol.st_info) == STB_LOCAL) return false;
  if (versions_ != nullptr && (versions_[index] & kHiddenVersion) != 0) return false;
  return std::strcmp(names_ + symbol.st_name, name) == 0;
}

// Index of the symbol, 0 (which is none) when it is not there; the same below.
std::uint32_t SymbolTable::find_by_gnu_hash(const char* name) const noexcept {
  const std::uint32_t bucket_count = gnu_hash_[0], first_symbol = gnu_hash_[1], filter_words = gnu_hash_[2];
  if (bucket_count == 0 || filter_words == 0) return 0;
  const auto* filter = reinterpret_cast<const std::uint64_t*>(gnu_hash_ + 4);
  const std::uint32_t* buckets = gnu_hash_ + 4 + 2 * std::size_t{filter_words};
  const std::uint32_t* chain = buckets + bucket_count;
  const std::uint32_t hash = gnu_hash_of(name);
  const std::uint64_t bits = std::uint64_t{1} << hash % 64 | std::uint64_t{1} << (hash >> gnu_hash_[3]) % 64;
  if ((filter[hash / 64 % filter_words] & bits) != bits) return 0;
  for (std::uint32_t index = buckets[hash % bucket_count]; index >= first_symbol && index != 0; ++index) {
    const std::uint32_t found = chain[index - first_symbol];
    if ((found | 1) == (hash | 1) && defines(index, name)) return index;
    if ((found & 1) != 0) break;
  }
  return 0;
}

std::uint32_t SymbolTable::find_by_elf_hash(const char* name) const noexcept {
  const std::uint32_t bucket_count = elf_hash_[0], symbol_count = elf_hash_[1];
  if (bucket_count == 0) return 0;
  const std::uint32_t* buckets = elf_hash_ + 2;
  const std::uint32_t* chain = buckets + bucket_count;
  for (std::uint32_t index = buckets[elf_hash_of(name) % bucket_count]; index != 0 && index < symbol_count;
       index = chain[index])
    if (defines(index, name)) return index;
  return 0;
}

Symbol SymbolTable::find(const char* name) const noexcept {
  if (symbols_ == nullptr || names_ == nullptr) return {};
  std::uint32_t index = 0;
  if (gnu_hash_ != nullptr)
    index = find_by_gnu_hash(name);
  else if (elf_hash_ != nullptr)
    index = find_by_elf_hash(name);
  if (index == 0) return {};
  const Elf64_Sym& symbol = symbols_[index];
  const std::uint64_t bias = symbol.st_shndx == SHN_ABS ? 0 : bias_;
  auto* address = reinterpret_cast<std::byte*>(bias + symbol.st_value);
  if (ELF64_ST_TYPE(symbol.st_info) == STT_GNU_IFUNC) address = reinterpret_cast<std::byte* (*)()>(address)();
  return {.address = address, .size_bytes = symbol.st_size};
}

}  // namespace whyrss::shim
