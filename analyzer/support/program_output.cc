#include "support/program_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "support/file.h"
#include "support/text.h"

namespace whyrss {

Result<ProgramOutput> run_program(const std::vector<std::string>& command) {
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
  const auto text = read_all(read_end.get(), "pipe");
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  ProgramOutput output{.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1, .first_line = {}};
  if (text) {
    std::string_view rest = *text;
    output.first_line = take_until(rest, '\n');
  }
  return output;
}

}  // namespace whyrss
