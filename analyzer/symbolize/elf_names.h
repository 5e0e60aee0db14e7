// One ELF file: function names from its symbol tables, lines from its DWARF, both also from a separate
// debug file found by build id. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "support/result.h"

namespace whyrss {

struct AddressName {
  std::uint64_t address = 0;
  std::string function, file;  // "" = not known
  int line = 0;                // 0 = not known
};

class ElfNames {
 public:
  // `build_id`: raw bytes that the file must carry. Fails when it is missing, no ELF file or another build.
  static Result<ElfNames> open(const std::string& path, const std::string& build_id);
  ElfNames(ElfNames&&) noexcept;
  ElfNames& operator=(ElfNames&&) noexcept;
  ~ElfNames();

  // `address`: ELF virtual address of an instruction.
  [[nodiscard]] AddressName find(std::uint64_t address) const;

 private:
  struct State;
  explicit ElfNames(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

std::string demangled(const char* name);

// Where distributions install separate debug files: ".../.build-id/ab/cdef.debug".
std::string debug_file_path(const std::string& build_id);

}  // namespace whyrss
