#include "symbolize/symbol_names.h"

#include <algorithm>
#include <bitset>
#include <cstddef>

#include "symbolize/demangle.h"

namespace whyrss {
namespace {

// A symbol without a size (assembly) covers what follows it, but not the next megabyte.
constexpr std::uint64_t kUnsizedReachBytes = 64 * 1024;

// In which pages addresses lie, modulo kPages: most symbols cover none, and a test of bits says so faster than a
// search.
class PagesOfAddresses {
 public:
  explicit PagesOfAddresses(const std::vector<std::uint64_t>& addresses) {
    for (const std::uint64_t address : addresses) pages_.set((address >> kPageShift) % kPages);
  }
  [[nodiscard]] bool may_hold(std::uint64_t start, std::uint64_t size) const {
    const std::uint64_t first = start >> kPageShift, count = ((start + size - 1) >> kPageShift) - first + 1;
    if (count >= kPages) return true;
    for (std::uint64_t page = first; page != first + count; ++page)
      if (pages_.test(page % kPages)) return true;
    return false;
  }

 private:
  static constexpr unsigned kPageShift = 12;
  static constexpr std::size_t kPages = 1 << 15;
  std::bitset<kPages> pages_;
};

struct Symbol {
  const char* name = nullptr;
  std::uint64_t start = 0, size = 0;
  bool global = false;
};

bool is_better(const Symbol& a, const Symbol& b) {
  if (b.name == nullptr) return true;
  if ((a.size > 0) != (b.size > 0)) return a.size > 0;
  if (a.start != b.start) return a.start > b.start;
  if (a.size != b.size) return a.size < b.size;
  return a.global && !b.global;
}

bool is_function(const GElf_Sym& symbol, GElf_Word section) {
  const auto type = GELF_ST_TYPE(symbol.st_info);
  return (type == STT_FUNC || type == STT_GNU_IFUNC) && section != SHN_UNDEF;
}

// Without the version that some tables write behind it ("fopen@@GLIBC_2.2.5").
std::string plain_name(const char* name) {
  const std::string text(name);
  return demangled(text.substr(0, text.find('@', 1)).c_str());
}

}  // namespace

std::vector<std::string> symbol_names(Dwfl_Module* module, const std::vector<std::uint64_t>& addresses) {
  std::vector<Symbol> best(addresses.size());
  const PagesOfAddresses pages(addresses);
  const int count = dwfl_module_getsymtab(module);
  for (int i = 0; i < count; ++i) {
    GElf_Sym raw;
    GElf_Addr start = 0;
    GElf_Word section = 0;
    const char* name = dwfl_module_getsym_info(module, i, &raw, &start, &section, nullptr, nullptr);
    if (name == nullptr || *name == '\0' || start == 0 || !is_function(raw, section)) continue;
    const Symbol symbol{name, start, raw.st_size, GELF_ST_BIND(raw.st_info) == STB_GLOBAL};
    const std::uint64_t reach = symbol.size > 0 ? symbol.size : kUnsizedReachBytes;
    if (!pages.may_hold(start, reach)) continue;
    for (auto at = std::lower_bound(addresses.begin(), addresses.end(), start);
         at != addresses.end() && *at - start < reach; ++at) {
      Symbol& known = best[static_cast<std::size_t>(at - addresses.begin())];
      if (is_better(symbol, known)) known = symbol;
    }
  }
  std::vector<std::string> names;
  for (const Symbol& symbol : best) names.push_back(symbol.name == nullptr ? "" : plain_name(symbol.name));
  return names;
}

}  // namespace whyrss
