#include "cli/doctor_command.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "collect/capabilities.h"
#include "collect/target_kind.h"
#include "shim/trace/trace_format.h"
#include "support/file.h"
#include "support/text.h"
#include "support/version.h"

namespace whyrss {
namespace {

void print(const Capability& capability) {
  fmt::print("  {}  {:<18} {}\n", capability.works ? "ok  " : "none", capability.name, capability.detail);
  if (capability.works) return;
  fmt::print("        without it: {}\n", capability.missing_without);
  if (!capability.remedy.empty()) fmt::print("        to enable:  {}\n", capability.remedy);
}

// First line that a program prints, stderr included; nothing when it does not run.
std::optional<std::string> first_output_line(std::vector<std::string> command) {
  std::array<int, 2> fds{};
  if (pipe(fds.data()) != 0) return std::nullopt;
  const Fd read_end(fds[0]);
  Fd write_end(fds[1]);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(write_end.get(), STDOUT_FILENO);
    dup2(write_end.get(), STDERR_FILENO);
    std::vector<char*> words;
    for (std::string& word : command) words.push_back(word.data());
    words.push_back(nullptr);
    execvp(words.front(), words.data());
    _exit(127);
  }
  write_end.reset();
  const auto text = read_all(read_end.get(), "pipe");
  int status = 0;
  if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0 || !text || text->empty()) return std::nullopt;
  std::string_view rest = *text;
  return std::string(take_until(rest, '\n'));
}

Capability preload_library() {
  const auto prefix = std::filesystem::path(read_link("/proc/self/exe")).parent_path().parent_path();
  const std::string path = (prefix / "lib" / "libwhyrss.so").string();
  const bool found = access(path.c_str(), R_OK) == 0;
  return {.name = "library",
          .works = found,
          .detail = found ? path : path + " is not there",
          .missing_without = "code lines: nothing can be recorded",
          .remedy = found ? "" : "install libwhyrss.so in lib/ beside bin/whyrss"};
}

// What an interpreter says of itself: "CPython 3.13.0", and whether it is free-threaded.
constexpr const char* kAskPython =
    "import platform, sysconfig; print(platform.python_implementation(), platform.python_version(), "
    "*['free-threaded'] * bool(sysconfig.get_config_var('Py_GIL_DISABLED')))";

Capability python_support(const std::string& program) {
  Capability result{
      .name = "python",
      .works = false,
      .detail = program + " does not run",
      .missing_without = "lines of Python code; native ones remain",
      .remedy = fmt::format("use CPython 3.{} to 3.{}", trace::kFirstPythonMinor, trace::kLastPythonMinor)};
  const auto version = first_output_line({program, "-c", kAskPython});
  if (!version) return result;
  result.detail = fmt::format("{}: {}", program, *version);
  for (std::uint32_t minor = trace::kFirstPythonMinor; minor <= trace::kLastPythonMinor; ++minor)
    if (version->starts_with(fmt::format("CPython 3.{}.", minor))) result.works = true;
  if (!result.works)
    result.detail += " is not known to this version";
  else if (version->find("free-threaded") != std::string::npos)
    result.detail += ": experimental, no test has run its tables";
  return result;
}

Capability target_program(const std::string& command) {
  const TargetProgram program = inspect_target(command);
  const bool works = program.kind == TargetKind::traceable;
  return {.name = "program",
          .works = works,
          .detail = works ? program.path : fmt::format("{} {}", command, describe(program.kind)),
          .missing_without = "code lines of this program; its causes come from the kernel alone",
          .remedy = works ? "" : "use a dynamically linked x86-64 glibc build"};
}

bool is_python(const std::string& command) {
  return std::filesystem::path(command).filename().string().starts_with("python");
}

}  // namespace

int run_doctor(const DoctorOptions& options) {
  utsname system{};
  uname(&system);
  fmt::print("whyrss {} on {} {} {}\n", kVersion, system.sysname, system.release, system.machine);
  print(preload_library());
  if (!options.command.empty()) print(target_program(options.command.front()));
  if (options.command.empty() || is_python(options.command.front()))
    print(python_support(options.command.empty() ? "python3" : options.command.front()));
  for (const Capability& capability : probe_capabilities()) print(capability);
  std::fflush(stdout);
  return 0;
}

}  // namespace whyrss
