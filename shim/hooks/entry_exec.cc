// exec and posix_spawn: the record, and an environment in which the program can start.
#include <alloca.h>
#include <errno.h>
#include <spawn.h>
#include <unistd.h>

#include <cstdarg>

#include "shim/events/caller.h"
#include "shim/events/vfork_child.h"
#include "shim/hooks/entry_allocate.h"
#include "shim/process/exec_environment.h"
#include "shim/process/process_events.h"
#include "shim/process/restriction.h"
#include "shim/sys/real.h"

namespace whyrss::shim {
namespace {

// Runs `call(environment)`, which returns only when it failed.
template <class Call>
int exec_observed(const ExecTarget& target, char* const* environment, Call call) noexcept {
  const int before = errno;
  const char* program = target.path != nullptr ? target.path : "";
  const ExecEnvironment usable(target, environment);
  observe_exec(program);
  errno = before;
  const bool restricted = leave_vfork_child();
  const int result = call(usable.get());
  if (restricted) stay_vfork_child();
  observe_exec_failed(program);
  return result;
}

int exec_path(const char* path, char* const* arguments, char* const* environment) noexcept {
  resolve_real();
  return exec_observed({.path = path}, environment,
                       [=](char* const* usable) { return real.execve(path, arguments, usable); });
}

int exec_file(const char* file, char* const* arguments, char* const* environment) noexcept {
  resolve_real();
  return exec_observed({.path = file, .search = true}, environment,
                       [=](char* const* usable) { return real.execvpe(file, arguments, usable); });
}

using Spawn = int (*)(pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*, char* const*,
                      char* const*);

int spawn_observed(const Caller& caller, Spawn spawn, const ExecTarget& target, pid_t* pid,
                   const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* attributes,
                   char* const* arguments, char* const* environment) noexcept {
  const ExecEnvironment usable(target, environment);
  pid_t child = 0;
  const int error = spawn(&child, target.path, actions, attributes, arguments, usable.get());
  if (error != 0) return error;
  if (pid != nullptr) *pid = child;
  observe_child(caller, trace::RecordKind::spawn, static_cast<std::uint32_t>(child));
  return 0;
}

// libc's headers promise that these are not null; programs break the promise.
[[gnu::noinline]] bool is_null(const void* pointer) noexcept {
  __asm__ volatile("" : "+r"(pointer));
  return pointer == nullptr;
}

std::size_t count_arguments(va_list arguments) noexcept {
  std::size_t count = 1;  // the first one is a named parameter
  while (va_arg(arguments, char*) != nullptr) ++count;
  return count;
}

}  // namespace
}  // namespace whyrss::shim

using namespace whyrss::shim;  // NOLINT(google-build-using-namespace): entries are global C functions

// argv from `first` and the variable arguments, on this function's stack; leaves `list` behind the NULL.
#define WHYRSS_COLLECT_ARGUMENTS(argv, list, first)                                \
  va_list list;                                                                    \
  va_start(list, first);                                                           \
  const std::size_t argument_count = is_null(first) ? 0 : count_arguments(list);   \
  va_end(list);                                                                    \
  auto** argv = static_cast<char**>(alloca((argument_count + 1) * sizeof(char*))); \
  va_start(list, first);                                                           \
  (argv)[0] = const_cast<char*>(first);                                            \
  for (std::size_t index = 1; index <= argument_count; ++index) (argv)[index] = va_arg(list, char*)

WHYRSS_ENTRY int execve(const char* path, char* const arguments[], char* const environment[]) noexcept {
  return exec_path(path, arguments, environment);
}

WHYRSS_ENTRY int execv(const char* path, char* const arguments[]) noexcept {
  return exec_path(path, arguments, __environ);
}

WHYRSS_ENTRY int execvp(const char* file, char* const arguments[]) noexcept {
  return exec_file(file, arguments, __environ);
}

WHYRSS_ENTRY int execvpe(const char* file, char* const arguments[], char* const environment[]) noexcept {
  return exec_file(file, arguments, environment);
}

WHYRSS_ENTRY int execl(const char* path, const char* first, ...) noexcept {
  WHYRSS_COLLECT_ARGUMENTS(arguments, list, first);
  va_end(list);
  return exec_path(path, arguments, __environ);
}

WHYRSS_ENTRY int execlp(const char* file, const char* first, ...) noexcept {
  WHYRSS_COLLECT_ARGUMENTS(arguments, list, first);
  va_end(list);
  return exec_file(file, arguments, __environ);
}

WHYRSS_ENTRY int execle(const char* path, const char* first, ...) noexcept {
  WHYRSS_COLLECT_ARGUMENTS(arguments, list, first);
  char* const* environment = va_arg(list, char* const*);
  va_end(list);
  return exec_path(path, arguments, environment);
}

WHYRSS_ENTRY int fexecve(int fd, char* const arguments[], char* const environment[]) noexcept {
  resolve_real();
  return exec_observed({.fd = fd}, environment,
                       [=](char* const* usable) { return real.fexecve(fd, arguments, usable); });
}

WHYRSS_ENTRY int execveat(int fd, const char* path, char* const arguments[], char* const environment[],
                          int flags) noexcept {
  resolve_real();
  if (real.execveat == nullptr) {  // glibc < 2.34
    errno = ENOSYS;
    return -1;
  }
  return exec_observed({.path = path, .fd = fd}, environment,
                       [=](char* const* usable) { return real.execveat(fd, path, arguments, usable, flags); });
}

WHYRSS_ENTRY int posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
                             const posix_spawnattr_t* attributes, char* const arguments[], char* const environment[]) {
  resolve_real();
  return spawn_observed(caller_here(), real.posix_spawn, {.path = path}, pid, actions, attributes, arguments,
                        environment);
}

WHYRSS_ENTRY int posix_spawnp(pid_t* pid, const char* file, const posix_spawn_file_actions_t* actions,
                              const posix_spawnattr_t* attributes, char* const arguments[], char* const environment[]) {
  resolve_real();
  return spawn_observed(caller_here(), real.posix_spawnp, {.path = file, .search = true}, pid, actions, attributes,
                        arguments, environment);
}
