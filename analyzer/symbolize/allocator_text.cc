#include "symbolize/allocator_text.h"

#include <gelf.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace whyrss {
namespace {

struct Message {
  std::string_view begin;  // of what it prints when something is wrong
  std::string_view allocator;
};
constexpr std::array<Message, 2> kMessages{{{"<jemalloc>: ", "jemalloc"}, {"mimalloc: warning: ", "mimalloc"}}};

bool holds_constants(const GElf_Shdr& section) {
  return section.sh_type == SHT_PROGBITS && (section.sh_flags & SHF_ALLOC) != 0 &&
         (section.sh_flags & (SHF_EXECINSTR | SHF_WRITE)) == 0;
}

}  // namespace

std::string allocator_by_text(Dwfl_Module* module) {
  GElf_Addr bias = 0;
  Elf* elf = dwfl_module_getelf(module, &bias);
  std::array<bool, kMessages.size()> found{};
  for (Elf_Scn* section = nullptr; elf != nullptr && (section = elf_nextscn(elf, section)) != nullptr;) {
    GElf_Shdr header;
    if (gelf_getshdr(section, &header) == nullptr || !holds_constants(header)) continue;
    const Elf_Data* data = elf_rawdata(section, nullptr);
    if (data == nullptr || data->d_buf == nullptr) continue;
    const std::string_view text(static_cast<const char*>(data->d_buf), data->d_size);
    for (std::size_t i = 0; i < kMessages.size(); ++i)
      found[i] = found[i] || text.find(kMessages[i].begin) != std::string_view::npos;
  }
  if (std::ranges::count(found, true) != 1) return "";
  return std::string(kMessages[static_cast<std::size_t>(std::ranges::find(found, true) - found.begin())].allocator);
}

}  // namespace whyrss
