#include "symbolize/elf_names.h"

#include <cxxabi.h>
#include <elfutils/libdw.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gelf.h>
#include <libelf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace whyrss {
namespace {

// A symbol without a size (assembly) covers what follows it, but not the next megabyte.
constexpr std::uint64_t kUnsizedReachBytes = 64 * 1024;
// Longer mangled names are not worth the demangler's time and stack.
constexpr std::size_t kLongestMangledName = 4096;

struct Symbol {
  std::uint64_t start = 0, size = 0;
  std::string name;
  bool global = false;
};

// An open ELF file with its DWARF, if any.
struct OpenElf {
  int fd = -1;
  Elf* elf = nullptr;
  Dwarf* dwarf = nullptr;

  OpenElf() = default;
  OpenElf(const OpenElf&) = delete;
  OpenElf& operator=(const OpenElf&) = delete;
  ~OpenElf() {
    if (dwarf != nullptr) dwarf_end(dwarf);
    if (elf != nullptr) elf_end(elf);
    if (fd >= 0) close(fd);
  }

  // False: not a regular file, or no ELF file. A FIFO or device in its place must not be opened to wait.
  bool open_file(const std::string& path) {
    fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat status {};
    if (fd < 0 || fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return false;
    elf = elf_begin(fd, ELF_C_READ_MMAP, nullptr);
    return elf != nullptr && elf_kind(elf) == ELF_K_ELF;
  }

  [[nodiscard]] std::string build_id() const {
    const void* bytes = nullptr;
    const ssize_t size = find_build_id(&bytes);
    return size > 0 ? std::string(static_cast<const char*>(bytes), static_cast<std::size_t>(size)) : "";
  }

 private:
  ssize_t find_build_id(const void** bytes) const;
};

bool is_build_id_note(const GElf_Nhdr& note, const char* name) {
  return note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0 && note.n_descsz > 0;
}

// The build id note in a PT_NOTE segment; libelf checks the bounds.
ssize_t OpenElf::find_build_id(const void** bytes) const {
  std::size_t count = 0;
  if (elf_getphdrnum(elf, &count) != 0) return -1;
  for (std::size_t i = 0; i < count; ++i) {
    GElf_Phdr header;
    if (gelf_getphdr(elf, static_cast<int>(i), &header) == nullptr || header.p_type != PT_NOTE) continue;
    const Elf_Type type = header.p_align == 8 ? ELF_T_NHDR8 : ELF_T_NHDR;
    Elf_Data* data = elf_getdata_rawchunk(elf, static_cast<std::int64_t>(header.p_offset), header.p_filesz, type);
    if (data == nullptr) continue;
    std::size_t offset = 0, name_at = 0, text_at = 0;
    GElf_Nhdr note;
    while ((offset = gelf_getnote(data, offset, &note, &name_at, &text_at)) > 0) {
      const char* base = static_cast<const char*>(data->d_buf);
      if (!is_build_id_note(note, base + name_at)) continue;
      *bytes = base + text_at;
      return static_cast<ssize_t>(note.n_descsz);
    }
  }
  return -1;
}

void add_symbols(Elf* elf, Elf_Scn* section, const GElf_Shdr& header, std::vector<Symbol>& symbols) {
  Elf_Data* data = elf_getdata(section, nullptr);
  if (data == nullptr || header.sh_entsize == 0) return;
  const std::uint64_t count = std::min<std::uint64_t>(header.sh_size, data->d_size) / header.sh_entsize;
  for (std::uint64_t i = 0; i < count; ++i) {
    GElf_Sym symbol;
    if (gelf_getsym(data, static_cast<int>(i), &symbol) == nullptr) break;
    const auto type = GELF_ST_TYPE(symbol.st_info);
    if ((type != STT_FUNC && type != STT_GNU_IFUNC) || symbol.st_shndx == SHN_UNDEF || symbol.st_value == 0) continue;
    const char* name = elf_strptr(elf, header.sh_link, symbol.st_name);
    if (name == nullptr || *name == '\0') continue;
    symbols.push_back({symbol.st_value, symbol.st_size, name, GELF_ST_BIND(symbol.st_info) == STB_GLOBAL});
  }
}

std::vector<Symbol> read_symbols(const OpenElf& file, std::uint32_t wanted_type) {
  std::vector<Symbol> symbols;
  for (Elf_Scn* section = nullptr; (section = elf_nextscn(file.elf, section)) != nullptr;) {
    GElf_Shdr header;
    if (gelf_getshdr(section, &header) != nullptr && header.sh_type == wanted_type)
      add_symbols(file.elf, section, header, symbols);
  }
  return symbols;
}

std::string source_name(Dwarf_Line* line) {
  const char* name = dwarf_linesrc(line, nullptr, nullptr);
  return name == nullptr ? "" : name;
}

bool covers(Dwarf_Die* unit, std::uint64_t address) { return dwarf_haspc(unit, address) == 1; }

}  // namespace

struct ElfNames::State {
  OpenElf file, debug;
  std::vector<Symbol> symbols;  // by start, then larger first

  void add(std::vector<Symbol> more) {
    symbols.insert(symbols.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  }

  // The innermost symbol that covers the address: of those that start last, a sized global one first.
  [[nodiscard]] const Symbol* find_symbol(std::uint64_t address) const {
    auto after = std::upper_bound(symbols.begin(), symbols.end(), address,
                                  [](std::uint64_t wanted, const Symbol& symbol) { return wanted < symbol.start; });
    const Symbol* unsized = nullptr;
    for (int looked = 0; after != symbols.begin() && looked < 64; ++looked) {  // 64: aliases, nested symbols
      const Symbol& symbol = *--after;
      if (symbol.size > 0 && address - symbol.start < symbol.size) return &symbol;
      if (symbol.size == 0 && unsized == nullptr && address - symbol.start < kUnsizedReachBytes) unsized = &symbol;
    }
    return unsized;
  }

  [[nodiscard]] Dwarf* dwarf() const { return debug.dwarf != nullptr ? debug.dwarf : file.dwarf; }
};

ElfNames::ElfNames(std::unique_ptr<State> state) : state_(std::move(state)) {}
ElfNames::ElfNames(ElfNames&&) noexcept = default;
ElfNames& ElfNames::operator=(ElfNames&&) noexcept = default;
ElfNames::~ElfNames() = default;

Result<ElfNames> ElfNames::open(const std::string& path, const std::string& build_id) {
  elf_version(EV_CURRENT);
  auto state = std::make_unique<State>();
  if (!state->file.open_file(path)) return Error{path + ": not here or no ELF file; its functions have no names"};
  if (state->file.build_id() != build_id)
    return Error{path + ": not the build that was recorded (build id differs); its functions have no names"};
  state->file.dwarf = dwarf_begin_elf(state->file.elf, DWARF_C_READ, nullptr);
  if (build_id.size() > 1 && state->debug.open_file(debug_file_path(build_id)) && state->debug.build_id() == build_id) {
    state->debug.dwarf = dwarf_begin_elf(state->debug.elf, DWARF_C_READ, nullptr);
    state->add(read_symbols(state->debug, SHT_SYMTAB));
  }
  state->add(read_symbols(state->file, SHT_SYMTAB));
  if (state->symbols.empty()) state->add(read_symbols(state->file, SHT_DYNSYM));
  std::stable_sort(state->symbols.begin(), state->symbols.end(), [](const Symbol& a, const Symbol& b) {
    return a.start != b.start ? a.start < b.start : (a.size != b.size ? a.size > b.size : a.global < b.global);
  });
  return ElfNames(std::move(state));
}

AddressName ElfNames::find(std::uint64_t address) const {
  AddressName result{address, "", "", 0};
  if (const Symbol* symbol = state_->find_symbol(address)) result.function = demangled(symbol->name.c_str());
  Dwarf* dwarf = state_->dwarf();
  if (dwarf == nullptr) return result;
  Dwarf_Die unit;
  bool found = dwarf_addrdie(dwarf, address, &unit) != nullptr;
  if (!found) {  // no .debug_aranges, as clang leaves it
    Dwarf_CU* next = nullptr;
    while (!found && dwarf_get_units(dwarf, next, &next, nullptr, nullptr, &unit, nullptr) == 0)
      found = covers(&unit, address);
  }
  if (!found) return result;
  if (Dwarf_Line* line = dwarf_getsrc_die(&unit, address)) {
    int number = 0;
    if (dwarf_lineno(line, &number) == 0 && number > 0) {
      result.line = number;
      result.file = source_name(line);
      if (result.file.empty()) result.line = 0;
    }
  }
  return result;
}

std::string demangled(const char* name) {
  if (name[0] != '_' || name[1] != 'Z' || std::strlen(name) > kLongestMangledName) return name;
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string result = status == 0 && text != nullptr ? text : name;
  std::free(text);
  return result;
}

std::string debug_file_path(const std::string& build_id) {
  std::string path = "/usr/lib/debug/.build-id/";
  for (std::size_t i = 0; i < build_id.size(); ++i)
    path += fmt::format("{:02x}{}", static_cast<unsigned char>(build_id[i]), i == 0 ? "/" : "");
  return path + ".debug";
}

}  // namespace whyrss
