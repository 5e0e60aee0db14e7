#include "shim/sys/file_symbols.h"

#include <elf.h>
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "shim/sys/raw_io.h"

namespace whyrss::shim {
namespace {

template <class Type>
bool read_object(const RawFile& file, std::uint64_t offset, Type& object) noexcept {
  return file.read_at({reinterpret_cast<char*>(&object), sizeof(object)}, offset) == sizeof(object);
}

bool is_elf(const Elf64_Ehdr& header) noexcept {
  return std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_ident[EI_CLASS] == ELFCLASS64 &&
         header.e_shentsize == sizeof(Elf64_Shdr) && header.e_phentsize == sizeof(Elf64_Phdr);
}

// Where the file keeps these bytes as its build id.
bool has_build_id(const RawFile& file, const Elf64_Ehdr& header, std::span<const std::byte> wanted,
                  std::span<char> buffer) noexcept {
  for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    if (!read_object(file, header.e_phoff + i * sizeof(segment), segment) || segment.p_type != PT_NOTE) continue;
    const std::size_t size =
        file.read_at(buffer.first(std::min<std::size_t>(buffer.size(), segment.p_filesz)), segment.p_offset);
    const std::string_view notes(buffer.data(), size);
    if (notes.find({reinterpret_cast<const char*>(wanted.data()), wanted.size()}) != std::string_view::npos)
      return true;
  }
  return false;
}

// A name in a string table that ends as wanted. A symbol may begin anywhere up to that end, since linkers let names
// share their ends.
struct Name {
  std::uint32_t begin = 0, end = 0;
  bool is_also = false;
};
// A function of such a name, which begins at `name`.
struct Function {
  std::uint64_t offset = 0;
  std::uint32_t name = 0, prefix_bytes = 0;
  bool is_also = false;
};
template <class Type>
struct Few {
  std::array<Type, 16> items;
  std::size_t count = 0;
  void add(const Type& item) noexcept {
    if (count < items.size()) items[count++] = item;
  }
  [[nodiscard]] std::span<const Type> view() const noexcept { return {items.data(), count}; }
};

// Calls with each whole name of the table and its offset.
template <class Visit>
void visit_names(const RawFile& file, const Elf64_Shdr& strings, std::span<char> buffer, Visit visit) noexcept {
  for (std::uint64_t at = 0; at < strings.sh_size;) {
    const std::size_t wanted = std::min<std::uint64_t>(buffer.size(), strings.sh_size - at);
    const std::size_t size = file.read_at(buffer.first(wanted), strings.sh_offset + at);
    if (size == 0) return;
    const char *begin = buffer.data(), *const end = begin + size;
    while (const void* const zero = std::memchr(begin, 0, static_cast<std::size_t>(end - begin))) {
      const auto* const name_end = static_cast<const char*>(zero);
      visit(std::string_view(begin, static_cast<std::size_t>(name_end - begin)),
            at + static_cast<std::uint64_t>(begin - buffer.data()));
      begin = name_end + 1;
    }
    // The rest of a longer name than the buffer is taken for a name of its own.
    at += begin == buffer.data() ? size : static_cast<std::size_t>(begin - buffer.data());
  }
}

Few<Name> find_names(const RawFile& file, const Elf64_Shdr& strings, std::string_view suffix, std::string_view also,
                     std::span<char> buffer) noexcept {
  Few<Name> names;
  visit_names(file, strings, buffer, [&](std::string_view name, std::uint64_t at) {
    const bool is_also = name.ends_with(also);
    if (!is_also && !name.ends_with(suffix)) return;
    const std::uint64_t end = at + name.size() - (is_also ? also : suffix).size();
    names.add({static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(end), is_also});
  });
  return names;
}

Few<Function> find_functions(const RawFile& file, const Elf64_Shdr& symbols, const Few<Name>& names,
                             std::span<char> buffer) noexcept {
  Few<Function> functions;
  const std::size_t room = buffer.size() / sizeof(Elf64_Sym) * sizeof(Elf64_Sym);
  for (std::uint64_t at = 0; at < symbols.sh_size;) {
    const std::size_t wanted = std::min<std::uint64_t>(room, symbols.sh_size - at);
    const std::size_t size = file.read_at(buffer.first(wanted), symbols.sh_offset + at);
    if (size < sizeof(Elf64_Sym)) break;
    for (std::size_t i = 0; i + sizeof(Elf64_Sym) <= size; i += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol{};
      std::memcpy(&symbol, buffer.data() + i, sizeof(symbol));
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_shndx == SHN_UNDEF) continue;
      for (const Name& name : names.view())
        if (symbol.st_name >= name.begin && symbol.st_name <= name.end)
          functions.add({symbol.st_value, symbol.st_name, name.end - symbol.st_name, name.is_also});
    }
    at += size / sizeof(Elf64_Sym) * sizeof(Elf64_Sym);
  }
  return functions;
}

bool have_one_prefix(const RawFile& file, const Elf64_Shdr& strings, const Function& function,
                     const Function& other) noexcept {
  std::array<char, 64> prefix{}, other_prefix{};
  const std::size_t size = function.prefix_bytes;
  return size == other.prefix_bytes && size <= prefix.size() &&
         file.read_at(std::span(prefix).first(size), strings.sh_offset + function.name) == size &&
         file.read_at(std::span(other_prefix).first(size), strings.sh_offset + other.name) == size &&
         prefix == other_prefix;
}

// In one table of symbols.
std::uint64_t find_pair(const RawFile& file, const Elf64_Shdr& symbols, const Elf64_Shdr& strings,
                        std::string_view suffix, std::string_view also, std::span<char> buffer) noexcept {
  const Few<Name> names = find_names(file, strings, suffix, also, buffer);
  if (names.count < 2) return 0;
  const Few<Function> functions = find_functions(file, symbols, names, buffer);
  for (const Function& function : functions.view())
    for (const Function& other : functions.view())
      if (!function.is_also && other.is_also && have_one_prefix(file, strings, function, other)) return function.offset;
  return 0;
}

}  // namespace

std::uint64_t find_in_file(const char* path, std::span<const std::byte> build_id, std::string_view suffix,
                           std::string_view also, std::span<char> buffer) noexcept {
  const RawFile file(path, O_RDONLY);
  Elf64_Ehdr header{};
  if (!file || build_id.empty() || !read_object(file, 0, header) || !is_elf(header)) return 0;
  if (!has_build_id(file, header, build_id, buffer)) return 0;
  std::uint64_t found = 0;
  for (std::uint64_t i = 0; i < header.e_shnum && found == 0; ++i) {
    Elf64_Shdr symbols{}, strings{};
    if (!read_object(file, header.e_shoff + i * sizeof(symbols), symbols)) return 0;
    if (symbols.sh_type != SHT_SYMTAB && symbols.sh_type != SHT_DYNSYM) continue;
    if (symbols.sh_link >= header.e_shnum ||
        !read_object(file, header.e_shoff + symbols.sh_link * sizeof(strings), strings) ||
        symbols.sh_size > kMostSymbolBytes || strings.sh_size > kMostSymbolBytes)
      continue;
    found = find_pair(file, symbols, strings, suffix, also, buffer);
  }
  return found;
}

}  // namespace whyrss::shim
