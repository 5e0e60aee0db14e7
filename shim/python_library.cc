// Symbols of one library by its own tables. The loader's dlsym takes a lock that a thread in dlopen can hold
// while it waits for the one that our hook runs in.
// Sources: System V gABI (dynamic section), the GNU hash section as ld and glibc have it (dl-lookup.c).
#include "shim/python_library.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstring>

namespace whyrss::shim {
namespace {

const Elf64_Dyn* dynamic_section(const LoadedImage& image) noexcept {
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(image.start);
  if (image.end - image.start < sizeof(Elf64_Ehdr) || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0)
    return nullptr;
  if (header->e_phoff + header->e_phnum * sizeof(Elf64_Phdr) > 4096) return nullptr;
  const auto* segments = reinterpret_cast<const Elf64_Phdr*>(image.start + header->e_phoff);
  for (std::size_t i = 0; i < header->e_phnum; ++i)
    if (segments[i].p_type == PT_DYNAMIC) return reinterpret_cast<const Elf64_Dyn*>(image.bias + segments[i].p_vaddr);
  return nullptr;
}

std::uint32_t hash_of(const char* name) noexcept {
  std::uint32_t hash = 5381;
  for (; *name != '\0'; ++name) hash = hash * 33 + static_cast<unsigned char>(*name);
  return hash;
}

Symbol symbol_of_program(const char* name) noexcept {
  void* address = dlsym(RTLD_DEFAULT, name);
  Dl_info info{};
  void* entry = nullptr;
  if (address == nullptr) return {};
  if (dladdr1(address, &info, &entry, RTLD_DL_SYMENT) == 0 || entry == nullptr)
    return {.address = static_cast<std::byte*>(address)};
  return {.address = static_cast<std::byte*>(address), .size_bytes = static_cast<const ElfW(Sym)*>(entry)->st_size};
}

}  // namespace

Library::Library(const LoadedImage& image) noexcept : of_image_(true), bias_(image.bias) {
  for (const Elf64_Dyn* entry = dynamic_section(image); entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
    // glibc has replaced these by addresses.
    const std::uint64_t at = entry->d_un.d_ptr < image.start ? entry->d_un.d_ptr + image.bias : entry->d_un.d_ptr;
    if (at < image.start || at >= image.end) continue;
    if (entry->d_tag == DT_SYMTAB) symbols_ = reinterpret_cast<const std::byte*>(at);
    if (entry->d_tag == DT_STRTAB) names_ = reinterpret_cast<const char*>(at);
    if (entry->d_tag == DT_GNU_HASH) hash_ = reinterpret_cast<const std::uint32_t*>(at);
  }
}

Symbol Library::symbol(const char* name) const noexcept {
  return of_image_ ? symbol_of_image(name) : symbol_of_program(name);
}

Symbol Library::symbol_of_image(const char* name) const noexcept {
  if (symbols_ == nullptr || names_ == nullptr || hash_ == nullptr) return {};
  const std::uint32_t bucket_count = hash_[0], first_symbol = hash_[1], bloom_words = hash_[2];
  const std::uint32_t* buckets = hash_ + 4 + 2 * std::size_t{bloom_words};
  const std::uint32_t* chain = buckets + bucket_count;
  if (bucket_count == 0) return {};
  const std::uint32_t hash = hash_of(name);
  for (std::uint32_t index = buckets[hash % bucket_count]; index >= first_symbol; ++index) {
    const std::uint32_t found = chain[index - first_symbol];
    const auto* entry = reinterpret_cast<const Elf64_Sym*>(symbols_) + index;
    if ((found | 1) == (hash | 1) && entry->st_shndx != SHN_UNDEF && std::strcmp(names_ + entry->st_name, name) == 0)
      return {.address = reinterpret_cast<std::byte*>(bias_ + entry->st_value), .size_bytes = entry->st_size};
    if ((found & 1) != 0) break;
  }
  return {};
}

ShortText& ShortText::add(std::string_view piece) noexcept {
  const std::size_t size = std::min(piece.size(), sizeof(bytes_) - size_);
  std::memcpy(bytes_ + size_, piece.data(), size);
  size_ += size;
  return *this;
}

ShortText& ShortText::add(std::uint64_t number) noexcept {
  char digits[20];
  std::size_t count = 0;
  do {
    digits[count++] = static_cast<char>('0' + number % 10);
    number /= 10;
  } while (number != 0);
  while (count > 0) add({&digits[--count], 1});
  return *this;
}

}  // namespace whyrss::shim
