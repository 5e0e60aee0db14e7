#include "symbolize/elf_file.h"

#include <elfutils/libdwelf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

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

bool has_build_id(int fd, const std::string& wanted) {
  Elf* elf = elf_begin(fd, ELF_C_READ_MMAP, nullptr);
  const void* bytes = nullptr;
  const ssize_t size = elf == nullptr ? -1 : dwelf_elf_gnu_build_id(elf, &bytes);
  const bool same = size > 0 && wanted == std::string(static_cast<const char*>(bytes), static_cast<std::size_t>(size));
  if (elf != nullptr) elf_end(elf);
  return same;
}

// As dwfl_standard_find_debuginfo, which on its way loads the library that asks servers, and all that this one
// needs: 40 libraries and 30 ms for nothing. A file without a build id is left to it: it asks no server about those.
int find_debug_file(Dwfl_Module* module, void** user_data, const char* name, Dwarf_Addr base, const char* path,
                    const char* link, GElf_Word link_crc, char** found_path) {
  const std::string build_id = build_id_of(module);
  if (build_id.empty())
    return dwfl_standard_find_debuginfo(module, user_data, name, base, path, link, link_crc, found_path);
  const int by_id = dwfl_build_id_find_debuginfo(module, user_data, name, base, path, link, link_crc, found_path);
  if (by_id >= 0 || path == nullptr || link == nullptr || *link == '\0' || std::strchr(link, '/') != nullptr)
    return by_id;
  const std::string folder = std::string(path).substr(0, std::string(path).rfind('/') + 1);
  for (const std::string& place : {folder, folder + ".debug/", "/usr/lib/debug" + folder}) {
    Fd fd = open_regular(place + link);
    if (!fd || !has_build_id(fd.get(), build_id)) continue;
    *found_path = strdup((place + link).c_str());
    return fd.release();
  }
  return -1;
}

}  // namespace

Result<ElfFile> ElfFile::open(const std::string& path, const std::string& build_id) {
  static const Dwfl_Callbacks callbacks{.find_elf = find_no_elf,
                                        .find_debuginfo = find_debug_file,
                                        .section_address = nullptr,
                                        .debuginfo_path = nullptr};
  const Error no_elf{path + ": no ELF file that can be read; its functions have no names"};
  unsetenv("DEBUGINFOD_URLS");  // else elfutils asks servers
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
