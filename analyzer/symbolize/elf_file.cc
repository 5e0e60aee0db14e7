#include "symbolize/elf_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "support/file.h"

namespace whyrss {
namespace {

// A FIFO or device in the file's place must not be opened to wait.
Fd open_regular(const std::string& path) {
  Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status {};
  if (!fd || fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) return Fd();
  return fd;
}

int find_no_elf(Dwfl_Module*, void**, const char*, Dwarf_Addr, char**, Elf**) { return -1; }

std::string build_id_of(Dwfl_Module* module) {
  const unsigned char* bytes = nullptr;
  GElf_Addr address = 0;
  const int size = dwfl_module_build_id(module, &bytes, &address);
  return size > 0 ? std::string(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size)) : "";
}

}  // namespace

Result<ElfFile> ElfFile::open(const std::string& path, const std::string& build_id) {
  static const Dwfl_Callbacks callbacks{.find_elf = find_no_elf,
                                        .find_debuginfo = dwfl_standard_find_debuginfo,
                                        .section_address = nullptr,
                                        .debuginfo_path = nullptr};
  const Error no_elf{path + ": no ELF file that can be read; its functions have no names"};
  unsetenv("DEBUGINFOD_URLS");  // else libdwfl asks servers
  Fd fd = open_regular(path);
  if (!fd) return no_elf;
  std::unique_ptr<Dwfl, End> session(dwfl_begin(&callbacks));
  if (!session) return no_elf;
  dwfl_report_begin(session.get());
  Dwfl_Module* module = dwfl_report_elf(session.get(), path.c_str(), path.c_str(), fd.get(), 0, true);
  if (module == nullptr) return no_elf;
  fd.release();  // the session's now
  dwfl_report_end(session.get(), nullptr, nullptr);
  if (build_id_of(module) != build_id)
    return Error{path + ": not the build that was recorded (build id differs); its functions have no names"};
  return ElfFile(std::move(session), module);
}

std::string debug_file_path(const std::string& build_id) {
  if (build_id.size() < 2) return "";
  std::string path = "/usr/lib/debug/.build-id/";
  for (std::size_t i = 0; i < build_id.size(); ++i)
    path += fmt::format("{:02x}{}", static_cast<unsigned char>(build_id[i]), i == 0 ? "/" : "");
  return path + ".debug";
}

}  // namespace whyrss
