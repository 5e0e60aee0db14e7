// Can the shim be preloaded into a program? Read from its file, following "#!" as the kernel does.
#pragma once

#include <string>

namespace whyrss {

enum class TargetKind {
  traceable,
  not_found,
  not_executable,
  static_program,  // no loader runs: LD_PRELOAD is not read
  static_go,       // likewise, and built by Go
  privileged,      // setuid, setgid or with capabilities: the loader ignores LD_PRELOAD
  other_loader,    // musl and the like: it would fail on our library
  sanitizer,       // its runtime ends the program when another library comes first
  other_class,     // 32-bit or another machine: likewise
};

struct TargetProgram {
  TargetKind kind = TargetKind::traceable;
  std::string path;  // the ELF file in the end, or the script when its interpreter is missing
};

// `command` is searched below PATH like execvp does.
TargetProgram inspect_target(const std::string& command);

// True when the shim must not stand in LD_PRELOAD at all.
inline bool refuses_preload(TargetKind kind) {
  return kind == TargetKind::other_loader || kind == TargetKind::sanitizer || kind == TargetKind::other_class;
}

// "is statically linked", for a sentence about the program; "" for a traceable one.
const char* describe(TargetKind kind);

}  // namespace whyrss
