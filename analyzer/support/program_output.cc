#include "support/program_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>

#include "support/file.h"
#include "support/text.h"

namespace whyrss {

namespace {

using Clock = std::chrono::steady_clock;

int left_ms(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  return static_cast<int>(std::max<std::int64_t>(left.count(), 0));
}

// Until the end of all that it prints, or the deadline.
std::string read_until(int fd, Clock::time_point deadline) {
  constexpr std::size_t kMostBytes = 1 << 20;  // what comes later is left in the pipe
  std::string text;
  std::array<char, 4096> buffer;
  while (text.size() < kMostBytes) {
    pollfd waiting{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = poll(&waiting, 1, left_ms(deadline));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) break;
    const ssize_t got = read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return text;
}

// Nothing: it was killed at the deadline.
std::optional<int> wait_until(pid_t pid, Clock::time_point deadline) {
  int status = 0;
  while (true) {
    const pid_t ended = waitpid(pid, &status, WNOHANG);
    if (ended == pid || (ended < 0 && errno != EINTR)) return status;
    if (left_ms(deadline) == 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  kill(pid, SIGKILL);
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return std::nullopt;
}

}  // namespace

Result<ProgramOutput> run_program(const std::vector<std::string>& command, std::chrono::milliseconds patience) {
  std::array<int, 2> fds{};
  if (pipe2(fds.data(), O_CLOEXEC) != 0) return system_error("cannot make", "a pipe");
  const Fd read_end(fds[0]);
  Fd write_end(fds[1]);
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, write_end.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, write_end.get(), STDERR_FILENO);
  pid_t pid = 0;
  const int failed = posix_spawnp(&pid, words.front(), &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return Error{fmt::format("cannot run {}: {}", command.front(), std::strerror(failed))};
  write_end.reset();
  const Clock::time_point deadline = Clock::now() + patience;
  const std::string text = read_until(read_end.get(), deadline);
  const std::optional<int> status = wait_until(pid, deadline);
  if (!status)
    return Error{fmt::format("{} did not end within {} s", command.front(),
                             std::chrono::ceil<std::chrono::seconds>(patience).count())};
  std::string_view rest = text;
  return ProgramOutput{.status = WIFEXITED(*status) ? WEXITSTATUS(*status) : -1,
                       .first_line = std::string(take_until(rest, '\n'))};
}

}  // namespace whyrss
