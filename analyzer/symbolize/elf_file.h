// One ELF file that is known to be the build that was recorded, with the separate files that belong to it:
// by build id, .gnu_debuglink, .gnu_debugdata and .gnu_debugaltlink, as libdwfl finds them. Never asks a network.
#pragma once

#include <elfutils/libdwfl.h>

#include <memory>
#include <string>

#include "support/result.h"

namespace whyrss {

class ElfFile {
 public:
  // `build_id`: raw bytes that the file must carry. Fails when it is missing, no ELF file or another build.
  static Result<ElfFile> open(const std::string& path, const std::string& build_id);

  // Reported at base 0: addresses are ELF virtual addresses. Never null.
  [[nodiscard]] Dwfl_Module* module() const { return module_; }

 private:
  struct End {
    void operator()(Dwfl* session) const { dwfl_end(session); }
  };
  ElfFile(std::unique_ptr<Dwfl, End> session, Dwfl_Module* module) : session_(std::move(session)), module_(module) {}

  std::unique_ptr<Dwfl, End> session_;
  Dwfl_Module* module_;
};

// Where distributions install separate debug files: ".../.build-id/ab/cdef.debug"; "" without a build id.
std::string debug_file_path(const std::string& build_id);

}  // namespace whyrss
