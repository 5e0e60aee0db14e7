#include "cli/allocators.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <utility>

#include "support/file.h"
#include "support/text.h"

namespace whyrss {
namespace {

// By soname, newest first; the loader knows the folders.
const std::map<std::string, std::vector<std::string>>& library_names() {
  static const std::map<std::string, std::vector<std::string>> kNames{
      {"jemalloc", {"libjemalloc.so.2", "libjemalloc.so.1", "libjemalloc.so"}},
      {"tcmalloc", {"libtcmalloc.so.4", "libtcmalloc_minimal.so.4", "libtcmalloc.so", "libtcmalloc_minimal.so"}},
      {"mimalloc", {"libmimalloc.so.3", "libmimalloc.so.2", "libmimalloc.so.1", "libmimalloc.so"}}};
  return kNames;
}

template <typename Function>
Function symbol(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

// 209 is 2.0.9; other schemes are shown as they are.
std::string mimalloc_version(int number) {
  if (number >= 1000) return std::to_string(number);
  return fmt::format("{}.{}.{}", number / 100, number / 10 % 10, number % 10);
}

std::string jemalloc_version(int (*mallctl)(const char*, void*, std::size_t*, void*, std::size_t)) {
  const char* text = nullptr;
  std::size_t size = sizeof text;
  if (mallctl("version", static_cast<void*>(&text), &size, nullptr, 0) != 0 || text == nullptr) return "";
  std::string_view rest = text;  // 5.3.0-0-g54eaed1d...
  return std::string(take_until(rest, '-'));
}

// Words of "a b  c"; quoting is not needed by any setting known.
std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (std::string_view word = take_word(text); !word.empty(); word = take_word(text)) words.emplace_back(word);
  return words;
}

Result<AllocatorChoice> with_settings(std::string name, std::string_view settings) {
  AllocatorChoice choice{std::move(name), words_of(settings)};
  if (choice.name.empty()) return Error{"an empty name of an allocator"};
  const auto is_setting = [](const std::string& word) { return word.find('=') != std::string::npos && word[0] != '='; };
  if (choice.settings.empty() || !std::all_of(choice.settings.begin(), choice.settings.end(), is_setting))
    return Error{fmt::format("{}: expected VARIABLE=VALUE after the colon", choice.name)};
  return choice;
}

// Our own program with `library` before everything, asked whose malloc it has.
Result<FoundAllocator> ask_with(const std::string& library) {
  std::array<int, 2> fds{};
  if (pipe2(fds.data(), O_CLOEXEC) != 0) return system_error("cannot make", "a pipe");
  const Fd read_end(fds[0]);
  Fd write_end(fds[1]);
  const std::string program = read_link("/proc/self/exe");
  const pid_t pid = fork();
  if (pid < 0) return system_error("cannot start", program);
  if (pid == 0) {
    dup2(write_end.get(), STDOUT_FILENO);
    if (const int null = open("/dev/null", O_RDWR); null >= 0) dup2(null, STDERR_FILENO);  // the loader may complain
    if (library.empty())
      unsetenv("LD_PRELOAD");
    else
      setenv("LD_PRELOAD", library.c_str(), 1);
    execl(program.c_str(), "whyrss", "compare-allocators", "--own-allocator", nullptr);
    _exit(127);
  }
  write_end.reset();
  const Result<std::string> text = read_all(read_end.get(), "pipe");
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!text || status != 0) return Error{"does not run: a program with it preloaded fails"};
  const std::vector<std::string> lines = split(*text, '\n');
  if (lines.size() < 3) return Error{"does not say what it is"};
  return FoundAllocator{.family = lines[0], .version = lines[1], .library = lines[2]};
}

Result<FoundAllocator> find_library(const std::string& library) {
  // The loader takes blanks and colons for separators, and then goes on without the library.
  if (library.find_first_of(": ") != std::string::npos)
    return Error{library + ": cannot be preloaded, its path holds a blank or a colon"};
  const bool is_path = library.find('/') != std::string::npos;
  if (is_path && access(library.c_str(), R_OK) != 0) return system_error("cannot read", library);
  Result<FoundAllocator> found = ask_with(is_path ? std::filesystem::absolute(library).string() : library);
  if (!found) return Error{library + ": " + found.error()};
  if (found->library.empty()) return Error{library + (is_path ? ": brings no malloc" : ": not found by the loader")};
  return found;
}

}  // namespace

Result<std::vector<AllocatorChoice>> parse_allocators(const std::string& list) {
  std::vector<AllocatorChoice> choices;
  std::string_view rest = list;
  do {
    const std::size_t end = rest.find_first_of(",:");
    std::string name(rest.substr(0, end));
    if (end != std::string_view::npos && rest[end] == ':') {
      Result<AllocatorChoice> choice = with_settings(std::move(name), rest.substr(end + 1));
      if (!choice) return Error{choice.error()};
      choices.push_back(std::move(*choice));
      return choices;
    }
    if (name.empty()) return Error{"an empty name of an allocator"};
    choices.push_back({std::move(name), {}});
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (end != std::string_view::npos && rest.empty()) return Error{"an empty name of an allocator"};
  } while (!rest.empty());
  return choices;
}

std::vector<AllocatorChoice> default_allocators() {
  return {{"glibc", {}}, {"jemalloc", {}}, {"tcmalloc", {}}, {"mimalloc", {}}};
}

std::vector<std::string> thrifty_settings(const std::string& family) {
  // Fewer arenas keep fewer free pages; a threshold that is set no longer grows, so that large blocks go back.
  if (family == "glibc")
    return {"MALLOC_ARENA_MAX=2", "MALLOC_MMAP_THRESHOLD_=131072", "MALLOC_TRIM_THRESHOLD_=131072"};
  if (family == "jemalloc") return {"MALLOC_CONF=dirty_decay_ms:0,muzzy_decay_ms:0"};
  if (family == "tcmalloc") return {"TCMALLOC_AGGRESSIVE_DECOMMIT=1"};
  // Its versions call it differently, and pass over what they do not know.
  if (family == "mimalloc") return {"MIMALLOC_PURGE_DELAY=0", "MIMALLOC_DECOMMIT_DELAY=0", "MIMALLOC_PAGE_RESET=1"};
  return {};
}

Result<FoundAllocator> find_allocator(const std::string& name) {
  if (name == "glibc") return FoundAllocator{.family = "glibc", .version = gnu_get_libc_version(), .library = ""};
  const auto known = library_names().find(name);
  if (known == library_names().end()) return find_library(name);
  for (const std::string& library : known->second)
    if (Result<FoundAllocator> found = find_library(library)) return found;
  return Error{fmt::format("{}: not found ({})", name, fmt::join(known->second, ", "))};
}

std::string describe_own_allocator() {
  std::string family = "other", version, path;
  Dl_info info{};
  const bool known = dladdr(dlsym(RTLD_DEFAULT, "malloc"), &info) != 0 && info.dli_fname != nullptr;
  const std::string file = known ? std::filesystem::path(info.dli_fname).filename().string() : "";
  if (file.starts_with("libc.so") || file.starts_with("libc-2")) {
    family = "glibc";
    version = gnu_get_libc_version();
  } else if (known) {
    path = info.dli_fname;
    using MallctlFunction = int (*)(const char*, void*, std::size_t*, void*, std::size_t);
    if (auto* mi_version = symbol<int (*)()>("mi_version")) {
      family = "mimalloc";
      version = mimalloc_version(mi_version());
    } else if (auto* tc_version = symbol<const char* (*)(int*, int*, const char**)>("tc_version")) {
      family = "tcmalloc";
      version = tc_version(nullptr, nullptr, nullptr);
    } else if (auto* mallctl = symbol<MallctlFunction>("mallctl")) {
      family = "jemalloc";
      version = jemalloc_version(mallctl);
    }
  }
  return fmt::format("{}\n{}\n{}\n", family, version, path);
}

}  // namespace whyrss
