#include "symbolize/dwarf_lines.h"

#include <dwarf.h>
#include <elfutils/libdw.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "symbolize/demangle.h"

namespace whyrss {
namespace {

// Real nesting of scopes is far below; a hostile file must not exhaust the stack.
constexpr int kDeepestNesting = 200;

struct Wanted {
  std::uint64_t address;  // as DWARF counts
  std::size_t index;
};
using WantedList = std::vector<Wanted>;  // ascending

// The part of `wanted` in [low, high).
template <typename Visit>
void for_those_in(const WantedList& wanted, std::uint64_t low, std::uint64_t high, const Visit& visit) {
  const auto before = [](const Wanted& one, std::uint64_t address) { return one.address < address; };
  for (auto at = std::lower_bound(wanted.begin(), wanted.end(), low, before); at != wanted.end() && at->address < high;
       ++at)
    visit(static_cast<std::size_t>(at - wanted.begin()));
}

template <typename Visit>
void for_ranges(Dwarf_Die* die, const Visit& visit) {
  Dwarf_Addr base = 0, low = 0, high = 0;
  for (std::ptrdiff_t at = 0; (at = dwarf_ranges(die, at, &base, &low, &high)) > 0;) visit(low, high);
}

// Which unit has an address: by .debug_aranges, or where that is missing (clang leaves it out) by the units'
// own ranges, read once.
class Units {
 public:
  explicit Units(Dwarf* dwarf) : dwarf_(dwarf) {}

  bool find(std::uint64_t address, Dwarf_Die& unit) {
    if (dwarf_addrdie(dwarf_, address, &unit) != nullptr) return true;
    if (!indexed_) index();
    const auto after = by_start_.upper_bound(address);
    if (after == by_start_.begin()) return false;
    const auto& [end, offset] = std::prev(after)->second;
    return address < end && dwarf_offdie(dwarf_, offset, &unit) != nullptr;
  }

 private:
  void index() {
    indexed_ = true;
    Dwarf_CU* next = nullptr;
    Dwarf_Die unit;
    while (dwarf_get_units(dwarf_, next, &next, nullptr, nullptr, &unit, nullptr) == 0)
      for_ranges(&unit, [&](Dwarf_Addr low, Dwarf_Addr high) {
        if (low != 0) by_start_.try_emplace(low, high, dwarf_dieoffset(&unit));  // 0: thrown away by the linker
      });
  }

  Dwarf* dwarf_;
  bool indexed_ = false;
  std::map<std::uint64_t, std::pair<std::uint64_t, Dwarf_Off>> by_start_;
};

std::string text_attribute(Dwarf_Die* die, unsigned name) {
  Dwarf_Attribute attribute;
  const char* text = dwarf_attr_integrate(die, name, &attribute) != nullptr ? dwarf_formstring(&attribute) : nullptr;
  return text == nullptr ? "" : text;
}

std::string function_name(Dwarf_Die* die) {
  for (const unsigned linkage : {DW_AT_linkage_name, DW_AT_MIPS_linkage_name})
    if (const std::string name = text_attribute(die, linkage); !name.empty()) return demangled(name.c_str());
  return demangled(text_attribute(die, DW_AT_name).c_str());
}

std::string known_file(const char* name) { return name == nullptr || std::string_view(name) == "???" ? "" : name; }

// The call of an inlined function: where in its caller.
void set_call_site(Dwarf_Die* unit, Dwarf_Die* inlined, CodeLine& caller) {
  Dwarf_Attribute attribute;
  Dwarf_Word line = 0, file = 0;
  if (dwarf_formudata(dwarf_attr(inlined, DW_AT_call_line, &attribute), &line) != 0 || line == 0 || line > 1U << 30)
    return;
  Dwarf_Files* files = nullptr;
  std::size_t count = 0;
  if (dwarf_formudata(dwarf_attr(inlined, DW_AT_call_file, &attribute), &file) != 0 ||
      dwarf_getsrcfiles(unit, &files, &count) != 0 || file >= count)
    return;
  caller.file = known_file(dwarf_filesrc(files, file, nullptr, nullptr));
  if (!caller.file.empty()) caller.line = static_cast<int>(line);
}

void set_line(Dwarf_Die* unit, std::uint64_t address, CodeLine& code) {
  Dwarf_Line* row = dwarf_getsrc_die(unit, address);
  int line = 0;
  if (row == nullptr || dwarf_lineno(row, &line) != 0 || line <= 0) return;
  code.file = known_file(dwarf_linesrc(row, nullptr, nullptr));
  if (!code.file.empty()) code.line = line;
}

// The functions around each wanted address of one unit, outermost first.
class Scopes {
 public:
  Scopes(Dwarf_Die* unit, const WantedList& wanted) : wanted_(wanted), chains_(wanted.size()) { walk(unit, 0); }

  [[nodiscard]] std::vector<Dwarf_Die>& chain(std::size_t i) { return chains_[i]; }

 private:
  void walk(Dwarf_Die* parent, int depth) {
    Dwarf_Die die;
    if (depth > kDeepestNesting || dwarf_child(parent, &die) != 0) return;
    do {
      const int tag = dwarf_tag(&die);
      if (tag == DW_TAG_subprogram || tag == DW_TAG_inlined_subroutine) add(die, tag == DW_TAG_subprogram);
      // Functions may be nested in whatever names things; nothing else has a function inside.
      if (tag == DW_TAG_subprogram || tag == DW_TAG_inlined_subroutine || tag == DW_TAG_lexical_block ||
          tag == DW_TAG_namespace || tag == DW_TAG_class_type || tag == DW_TAG_structure_type || tag == DW_TAG_module ||
          tag == DW_TAG_try_block || tag == DW_TAG_catch_block)
        walk(&die, depth + 1);
    } while (dwarf_siblingof(&die, &die) == 0);
  }

  void add(Dwarf_Die& die, bool has_code) {
    for_ranges(&die, [&](Dwarf_Addr low, Dwarf_Addr high) {
      for_those_in(wanted_, low, high, [&](std::size_t i) {
        if (has_code) chains_[i].clear();  // a function inside of another, with code of its own
        if (chains_[i].size() < kDeepestNesting) chains_[i].push_back(die);
      });
    });
  }

  const WantedList& wanted_;
  std::vector<std::vector<Dwarf_Die>> chains_;
};

// With -gsplit-dwarf the functions are in a .dwo file beside the source, and `unit` has only the line table.
Dwarf_Die unit_with_functions(Dwarf_Die unit) {
  std::uint8_t type = 0;
  Dwarf_Die split{};
  const bool is_split = dwarf_cu_info(unit.cu, nullptr, &type, nullptr, &split, nullptr, nullptr, nullptr) == 0 &&
                        type == DW_UT_skeleton && split.addr != nullptr;
  return is_split ? split : unit;
}

// `functions`: the unit that `chain` is in.
std::vector<CodeLine> lines_at(Dwarf_Die* unit, Dwarf_Die* functions, std::uint64_t address,
                               std::vector<Dwarf_Die>& chain) {
  std::vector<CodeLine> lines;
  for (auto scope = chain.rbegin(); scope != chain.rend(); ++scope) {
    lines.push_back({function_name(&*scope), "", 0});
    if (scope == chain.rbegin()) continue;
    set_call_site(functions, &*std::prev(scope), lines.back());
  }
  const bool owner_missing = chain.empty() || dwarf_tag(&chain.front()) != DW_TAG_subprogram;
  if (owner_missing) lines.emplace_back();
  if (owner_missing && !chain.empty()) set_call_site(functions, &chain.front(), lines.back());
  // A row for the whole chain: the innermost function's.
  set_line(unit, address, lines.front());
  return lines;
}

}  // namespace

bool find_dwarf_lines(Dwfl_Module* module, const std::vector<std::uint64_t>& addresses,
                      const std::function<void(std::size_t, std::vector<CodeLine>)>& found) {
  Dwarf_Addr bias = 0;
  Dwarf* dwarf = dwfl_module_getdwarf(module, &bias);
  if (dwarf == nullptr) return false;
  Units units(dwarf);
  std::map<Dwarf_Off, WantedList> by_unit;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    Dwarf_Die unit;
    if (units.find(addresses[i] - bias, unit)) by_unit[dwarf_dieoffset(&unit)].push_back({addresses[i] - bias, i});
  }
  for (const auto& [offset, wanted] : by_unit) {
    Dwarf_Die unit;
    if (dwarf_offdie(dwarf, offset, &unit) == nullptr) continue;
    Dwarf_Die functions = unit_with_functions(unit);
    Scopes scopes(&functions, wanted);
    for (std::size_t i = 0; i < wanted.size(); ++i)
      found(wanted[i].index, lines_at(&unit, &functions, wanted[i].address, scopes.chain(i)));
  }
  return true;
}

}  // namespace whyrss
