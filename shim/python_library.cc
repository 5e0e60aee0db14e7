#include "shim/python_library.h"

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

}  // namespace

Library::Library(const LoadedImage& image) noexcept : of_image_(true), image_(dynamic_section(image), image.bias) {}

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
