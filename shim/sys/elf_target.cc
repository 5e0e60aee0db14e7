#include "shim/sys/elf_target.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>

#include "shim/trace/sanitizer_runtime.h"

namespace whyrss::shim {
namespace {

// The kernel follows four interpreters of interpreters, and reads 256 bytes of a "#!" line.
constexpr int kMaxScripts = 5;
constexpr std::size_t kHeadBytes = 256;
constexpr std::size_t kMaxProgramHeaders = 64;
constexpr std::string_view kLoaderName = "ld-linux-x86-64.so.2";

enum class Verdict { loads, does_not, script };

// Copies the interpreter of a "#!" line. False when it has none.
bool script_interpreter(std::string_view head, Text& interpreter) noexcept {
  head.remove_prefix(2);
  head = std::string_view(head.data(), std::min(head.find('\n'), head.size()));
  while (!head.empty() && (head.front() == ' ' || head.front() == '\t')) head.remove_prefix(1);
  const std::string_view name(head.data(), std::min(head.find_first_of(" \t\r"), head.size()));
  interpreter.clear();
  interpreter.add(name);
  return !name.empty();
}

bool elf_loads(const RawFile& file, const Elf64_Ehdr& header) noexcept {
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_X86_64) return false;
  if (header.e_phentsize != sizeof(Elf64_Phdr)) return true;  // the kernel refuses it
  for (std::size_t index = 0; index < std::min<std::size_t>(header.e_phnum, kMaxProgramHeaders); ++index) {
    Elf64_Phdr segment{};
    if (file.read_at({reinterpret_cast<char*>(&segment), sizeof(segment)},
                     header.e_phoff + index * sizeof(Elf64_Phdr)) != sizeof(segment))
      return true;
    if (segment.p_type != PT_INTERP) continue;
    std::array<char, kHeadBytes> name{};
    const std::size_t size = file.read_at({name.data(), std::min(name.size() - 1, segment.p_filesz)}, segment.p_offset);
    std::string_view loader(name.data(), size);
    while (!loader.empty() && loader.back() == '\0') loader.remove_suffix(1);
    if (!loader.ends_with(kLoaderName)) return false;
    const auto read_at = [&](std::span<char> into, std::uint64_t offset) { return file.read_at(into, offset); };
    return !trace::SanitizerSearch(header, read_at).found();
  }
  return true;  // static
}

Verdict examine(const char* path, Text& interpreter) noexcept {
  const RawFile file(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (!file) return Verdict::loads;
  alignas(Elf64_Ehdr) std::array<char, kHeadBytes> head{};
  const std::size_t size = file.read_at(head, 0);
  const std::string_view text(head.data(), size);
  if (text.starts_with("#!")) return script_interpreter(text, interpreter) ? Verdict::script : Verdict::loads;
  if (size < sizeof(Elf64_Ehdr) || !text.starts_with(ELFMAG)) return Verdict::loads;
  Elf64_Ehdr header{};
  std::memcpy(&header, head.data(), sizeof(header));
  return elf_loads(file, header) ? Verdict::loads : Verdict::does_not;
}

bool is_executable_file(const char* path) noexcept {
  struct stat status {};
  return !is_raw_error(own_syscall(SYS_stat, as_long(path), as_long(&status))) && S_ISREG(status.st_mode) &&
         !is_raw_error(own_syscall(SYS_access, as_long(path), 1 /* X_OK */));
}

}  // namespace

bool preload_loads_in(const char* path, TargetTexts& texts) noexcept {
  if (path == nullptr) return true;
  texts.current.clear();
  texts.current.add(path);
  for (int script = 0; script < kMaxScripts; ++script) {
    const Verdict verdict = examine(texts.current.c_str(), texts.interpreter);
    if (verdict != Verdict::script) return verdict == Verdict::loads;
    texts.current.clear();
    texts.current.add(texts.interpreter.view());
  }
  return true;
}

void add_descriptor_path(int fd, Text& path) noexcept {
  path.add("/proc/self/fd/").add(static_cast<std::uint64_t>(fd < 0 ? 0 : fd));
}

bool search_path(const char* file, const char* path_list, Text& found) noexcept {
  if (file == nullptr) return false;
  const std::string_view name(file);
  if (name.find('/') != std::string_view::npos) {
    found.add(name);
    return true;
  }
  std::string_view rest(path_list != nullptr ? path_list : "/bin:/usr/bin");
  while (true) {
    const std::size_t colon = rest.find(':');
    const std::string_view directory(rest.data(), std::min(colon, rest.size()));
    found.clear();
    found.add(directory.empty() ? "." : directory).add("/").add(name);
    if (!found.cut() && is_executable_file(found.c_str())) return true;
    if (colon == std::string_view::npos) return false;
    rest.remove_prefix(colon + 1);
  }
}

}  // namespace whyrss::shim
