// The environment for a program about to run: the given one, or, where our library cannot load there, a
// copy without our LD_PRELOAD entry. The copy lives in this object: exec may run in a vfork child, where
// nothing may be allocated in the parent's heap, and what is mapped stays mapped in the parent. It may
// also run on a stack of 16 KiB: paths are put together in memory that is mapped only meanwhile.
#pragma once

#include <array>
#include <cstddef>

namespace whyrss::shim {

// What will be run.
struct ExecTarget {
  const char* path = nullptr;  // as given; nullptr or "": the open file `fd` itself
  int fd = -1;                 // a path that is not absolute starts here; -1: at the current directory
  bool search = false;         // `path` is looked for below PATH when it has no slash
};

class ExecEnvironment {
 public:
  ExecEnvironment(const ExecTarget& target, char* const* environment) noexcept;
  ExecEnvironment(const ExecEnvironment&) = delete;
  ExecEnvironment& operator=(const ExecEnvironment&) = delete;
  ~ExecEnvironment();  // after an exec that failed, and after posix_spawn
  [[nodiscard]] char* const* get() const noexcept { return environment_; }

 private:
  struct Scratch;
  void decide(const ExecTarget& target, Scratch& scratch) noexcept;
  void leave_out_own_preload(std::size_t preload_index, const char* others) noexcept;

  // Larger environments are mapped, which a vfork child leaves behind in its parent: rare on rare.
  static constexpr std::size_t kUsualEntries = 128;
  static constexpr std::size_t kUsualPreloadBytes = 512;

  char* const* environment_;
  std::array<char*, kUsualEntries> entries_;
  std::array<char, kUsualPreloadBytes> preload_;
  char** mapped_ = nullptr;
  std::size_t mapped_bytes_ = 0;
};

}  // namespace whyrss::shim
