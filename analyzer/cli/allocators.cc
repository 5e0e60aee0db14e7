#include "cli/allocators.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <utility>

#include "cli/exit_status.h"
#include "report/wording/format.h"
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

// A library is named by its path, or as the loader names it.
Status check_name(const std::string& name) {
  if (name.empty()) return Error{"an empty name of an allocator"};
  const bool is_library = name.find('/') != std::string::npos || name.find(".so") != std::string::npos;
  if (is_library || name == "glibc" || library_names().contains(name)) return Done{};
  return Error{shortened(name, 60) +
               " is no allocator that is known here: glibc, jemalloc, mimalloc, tcmalloc, or a library (libNAME.so, or "
               "its path)"};
}

// Words of "a b  c"; quoting is not needed by any setting known.
std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (std::string_view word = take_word(text); !word.empty(); word = take_word(text)) words.emplace_back(word);
  return words;
}

Result<AllocatorChoice> with_settings(std::string name, std::string_view settings) {
  AllocatorChoice choice{std::move(name), words_of(settings)};
  if (const Status known = check_name(choice.name); !known) return Error{known.error()};
  const auto is_setting = [](const std::string& word) { return word.find('=') != std::string::npos && word[0] != '='; };
  if (choice.settings.empty() || !std::all_of(choice.settings.begin(), choice.settings.end(), is_setting))
    return Error{fmt::format("{}: expected VARIABLE=VALUE after the colon", choice.name)};
  return choice;
}

// <prefix>/bin/whyrss -> <prefix>/lib/whyrss/own_allocator
std::string asked_program() {
  const auto prefix = std::filesystem::path(read_link("/proc/self/exe")).parent_path().parent_path();
  return (prefix / "lib" / "whyrss" / "own_allocator").string();
}

// A program with `library` before everything, asked whose malloc it has (own_allocator.c).
Result<FoundAllocator> ask_with(const std::string& library) {
  std::array<int, 2> fds{};
  if (pipe2(fds.data(), O_CLOEXEC) != 0) return system_error("cannot make", "a pipe");
  const Fd read_end(fds[0]);
  Fd write_end(fds[1]);
  const std::string program = asked_program();
  const pid_t pid = fork();
  if (pid < 0) return system_error("cannot start", program);
  if (pid == 0) {
    dup2(write_end.get(), STDOUT_FILENO);
    if (const int null = open("/dev/null", O_RDWR); null >= 0) dup2(null, STDERR_FILENO);  // the loader may complain
    if (library.empty())
      unsetenv("LD_PRELOAD");
    else
      setenv("LD_PRELOAD", library.c_str(), 1);
    execl(program.c_str(), program.c_str(), nullptr);
    _exit(kNotFound);
  }
  write_end.reset();
  const Result<std::string> text = read_all(read_end.get(), "pipe");
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotFound) return Error{"cannot run " + program};
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
    if (const Status known = check_name(name); !known) return Error{known.error()};
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
  if (name == "glibc") return ask_with("");
  const auto known = library_names().find(name);
  if (known == library_names().end()) return find_library(name);
  for (const std::string& library : known->second)
    if (Result<FoundAllocator> found = find_library(library)) return found;
  return Error{fmt::format("{}: not found ({})", name, fmt::join(known->second, ", "))};
}

}  // namespace whyrss
