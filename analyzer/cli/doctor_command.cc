#include "cli/doctor_command.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>

#include "cli/terminal.h"
#include "collect/cgroup/memory_group.h"
#include "collect/read/target_kind.h"
#include "collect/start/capabilities.h"
#include "collect/start/launch.h"
#include "shim/trace/trace_format.h"
#include "support/file.h"
#include "support/program_output.h"
#include "support/text.h"
#include "support/version.h"

namespace whyrss {
namespace {

void print(const Capability& capability) {
  const std::string below(27, ' ');
  print_wrapped(capability.detail, fmt::format("  {}  {:<18} ", capability.works ? "ok  " : "none", capability.name),
                below);
  if (capability.works) return;
  print_wrapped(capability.missing_without, "        without it: ", std::string(20, ' '));
  if (!capability.remedy.empty()) print_wrapped(capability.remedy, "        to enable:  ", std::string(20, ' '));
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
  const auto output = run_program({program, "-c", kAskPython});
  if (!output) result.detail = output.error();
  if (!output || output->status != 0 || output->first_line.empty()) return result;
  const std::string& version = output->first_line;
  result.detail = fmt::format("{}: {}", program, version);
  for (std::uint32_t minor = trace::kFirstPythonMinor; minor <= trace::kLastPythonMinor; ++minor)
    if (version.starts_with(fmt::format("CPython 3.{}.", minor))) result.works = true;
  if (!result.works)
    result.detail += " is not known to this version";
  else if (version.find("free-threaded") != std::string::npos)
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

// By trying it on a child that waits.
Capability memory_limit() {
  constexpr std::int64_t kTriedBytes = 64 << 20;
  Capability result{.name = "memory_max",
                    .works = false,
                    .detail = {},
                    .missing_without = "record --memory-max: runs under a memory limit",
                    .remedy = "run as root, in a cgroup that is delegated to you, or in a session of systemd"};
  sigset_t mask;
  sigprocmask(SIG_SETMASK, nullptr, &mask);
  auto child = GatedTarget::fork_child(mask);
  if (!child) {
    result.detail = child.error();
    return result;
  }
  const auto group = confine(child->pid(), kTriedBytes, own_place());
  child->cancel();
  if (!group) {
    result.detail = group.error();
    return result;
  }
  if (group->is_ours) remove_group(group->path);
  result.works = true;
  result.remedy.clear();
  result.detail = group->is_ours
                      ? fmt::format("a cgroup in {}", std::filesystem::path(group->path).parent_path().string())
                      : std::string("a scope of systemd");
  return result;
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
  print(memory_limit());
  std::fflush(stdout);
  return 0;
}

}  // namespace whyrss
