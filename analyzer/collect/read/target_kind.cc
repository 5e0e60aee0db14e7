#include "collect/read/target_kind.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "shim/trace/sanitizer_runtime.h"
#include "support/file.h"
#include "support/text.h"

namespace whyrss {
namespace {

constexpr int kMaxInterpreters = 5;  // as in the kernel: scripts that run scripts

bool is_program_file(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

// Like execvp: the first executable file; else one that is there but cannot be executed; else "".
std::string search(const std::string& command) {
  if (command.find('/') != std::string::npos) return access(command.c_str(), F_OK) == 0 ? command : std::string();
  const char* list = std::getenv("PATH");
  std::string present;
  for (const std::string& directory : split(list != nullptr ? list : "/bin:/usr/bin", ':')) {
    std::string path = (directory.empty() ? "." : directory) + "/" + command;
    if (!is_program_file(path)) continue;
    if (access(path.c_str(), X_OK) == 0) return path;
    if (present.empty()) present = std::move(path);
  }
  return present;
}

std::string read_head(const std::string& path, std::size_t size) {
  std::string head(size, '\0');
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const ssize_t got = fd ? pread(fd.get(), head.data(), head.size(), 0) : -1;
  head.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return head;
}

bool is_privileged(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return false;
  if ((status.st_mode & S_ISUID) != 0 && status.st_uid != geteuid()) return true;
  if ((status.st_mode & S_ISGID) != 0 && status.st_gid != getegid()) return true;
  return geteuid() != 0 && getxattr(path.c_str(), "security.capability", nullptr, 0) > 0;
}

// Whether a segment of notes (4 bytes each: sizes of name and description, type) has Go's build id: cmd/link puts it
// into the first one.
bool has_go_note(const Fd& fd, const Elf64_Phdr& segment) {
  constexpr std::string_view kGo("Go\0\0", 4);
  std::array<char, 4096> notes{};
  const ssize_t got = pread(fd.get(), notes.data(), std::min<std::size_t>(notes.size(), segment.p_filesz),
                            static_cast<off_t>(segment.p_offset));
  std::string_view rest(notes.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
  Elf64_Nhdr note;
  while (rest.size() >= sizeof note) {
    std::memcpy(&note, rest.data(), sizeof note);
    rest.remove_prefix(sizeof note);
    if (rest.substr(0, std::min<std::size_t>(note.n_namesz, rest.size())) == kGo) return true;
    const auto padded = [](std::uint64_t size) { return (size + 3) & ~std::uint64_t{3}; };
    rest.remove_prefix(std::min<std::uint64_t>(padded(note.n_namesz) + padded(note.n_descsz), rest.size()));
  }
  return false;
}

TargetKind kind_of_elf(const std::string& path, const std::string& head) {
  Elf64_Ehdr header;
  if (head.size() < sizeof header) return TargetKind::other_class;
  std::memcpy(&header, head.data(), sizeof header);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_X86_64) return TargetKind::other_class;
  if (is_privileged(path)) return TargetKind::privileged;
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  bool is_go = false;
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    const auto offset = static_cast<off_t>(header.e_phoff + static_cast<std::uint64_t>(i) * sizeof segment);
    if (pread(fd.get(), &segment, sizeof segment, offset) != sizeof segment) break;
    if (segment.p_type == PT_NOTE) is_go |= has_go_note(fd, segment);
    if (segment.p_type != PT_INTERP) continue;
    std::array<char, 4096> interpreter{};
    if (segment.p_filesz >= interpreter.size() ||
        pread(fd.get(), interpreter.data(), segment.p_filesz, static_cast<off_t>(segment.p_offset)) < 0)
      return TargetKind::other_loader;
    if (std::string_view(interpreter.data()).find("ld-linux-x86-64") == std::string_view::npos)
      return TargetKind::other_loader;
    const auto read_at = [&](std::span<char> into, std::uint64_t position) {
      const ssize_t got = pread(fd.get(), into.data(), into.size(), static_cast<off_t>(position));
      return got > 0 ? static_cast<std::size_t>(got) : std::size_t{0};
    };
    return trace::SanitizerSearch(header, read_at).found() ? TargetKind::sanitizer : TargetKind::traceable;
  }
  // The loader itself, run by hand, has no interpreter, but honours LD_PRELOAD.
  if (path.find("/ld-linux") != std::string::npos) return TargetKind::traceable;
  return is_go ? TargetKind::static_go : TargetKind::static_program;
}

}  // namespace

TargetProgram inspect_target(const std::string& command) {
  TargetProgram program{.kind = TargetKind::not_found, .path = search(command)};
  if (program.path.empty()) return program;
  for (int depth = 0; depth < kMaxInterpreters; ++depth) {
    if (!is_program_file(program.path) || access(program.path.c_str(), X_OK) != 0) {
      program.kind = TargetKind::not_executable;
      return program;
    }
    const std::string head = read_head(program.path, 256);
    if (head.starts_with(ELFMAG)) {
      program.kind = kind_of_elf(program.path, head);
      return program;
    }
    program.kind = TargetKind::traceable;  // unreadable, or not ours to know: the kernel decides
    if (!head.starts_with("#!")) return program;
    std::string_view line = std::string_view(head).substr(2);
    line = take_until(line, '\n');
    const std::string interpreter(take_word(line));
    if (access(interpreter.c_str(), F_OK) != 0) return program;
    program.path = interpreter;
  }
  return program;
}

const char* describe(TargetKind kind) {
  switch (kind) {
    case TargetKind::static_program:
      return "is statically linked";
    case TargetKind::static_go:
      return "is a statically linked Go program";
    case TargetKind::privileged:
      return "is setuid or has capabilities";
    case TargetKind::other_loader:
      return "does not use glibc";
    case TargetKind::sanitizer:
      return "is built with a sanitizer";
    case TargetKind::other_class:
      return "is no x86-64 program";
    case TargetKind::not_found:
      return "was not found";
    case TargetKind::not_executable:
      return "is not executable";
    case TargetKind::traceable:
      break;
  }
  return "";
}

}  // namespace whyrss
