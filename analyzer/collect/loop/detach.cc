#include "collect/loop/detach.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "support/text.h"

namespace whyrss {
namespace {

void close_all_but(const std::vector<int>& keep) {
  std::vector<int> open_fds;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error))
    if (const auto fd = parse_number<int>(entry.path().filename().string())) open_fds.push_back(*fd);
  for (const int fd : open_fds)
    if (fd > STDERR_FILENO && std::ranges::find(keep, fd) == keep.end()) close(fd);
}

void forget_environment() {
  unsetenv("LD_PRELOAD");
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    std::string_view rest = *entry;
    const std::string_view name = take_until(rest, '=');
    if (name.starts_with("WHYRSS_")) names.emplace_back(name);
  }
  for (const std::string& name : names) unsetenv(name.c_str());
}

void raise_limits() {
  for (const auto resource : {RLIMIT_AS, RLIMIT_DATA, RLIMIT_FSIZE, RLIMIT_NOFILE, RLIMIT_CPU}) {
    rlimit limit{};
    if (getrlimit(resource, &limit) != 0) continue;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(resource, &limit);
  }
}

}  // namespace

void detach_from_job(const std::vector<int>& keep) {
  setsid();
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = STDIN_FILENO; null >= 0 && fd <= STDERR_FILENO; ++fd)
    if (std::ranges::find(keep, fd) == keep.end()) dup2(null, fd);
  close_all_but(keep);
  if (chdir("/") != 0) return;  // cannot fail; the result must be checked
  umask(077);                   // recordings are for this user alone, whatever the job's umask is
  forget_environment();
  raise_limits();
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGPIPE, SIGXFSZ, SIGXCPU, SIGALRM,
                           SIGTSTP, SIGTTIN, SIGTTOU, SIGIO})
    std::signal(number, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

}  // namespace whyrss
