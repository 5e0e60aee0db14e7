#include "collect/start/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <exception>
#include <string_view>

#include "support/clock.h"
#include "support/text.h"

namespace whyrss {
namespace {

constexpr std::int64_t kReadyNs = 10'000'000'000;
constexpr std::string_view kSessionEntry = "WHYRSS_SESSION=";

// When record is started with stdio closed, its own descriptors must not become the target's stdio.
Fd above_stdio(int fd) {
  if (fd > STDERR_FILENO || fd < 0) return Fd(fd);
  const Fd low(fd);
  return Fd(fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
}

Result<std::pair<Fd, Fd>> make_pipe() {
  std::array<int, 2> fds{};
  if (pipe2(fds.data(), O_CLOEXEC) != 0) return system_error("cannot make", "a pipe");
  Fd read_end = above_stdio(fds[0]);
  return std::pair(std::move(read_end), above_stdio(fds[1]));
}

int wait_for(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  for (std::string& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

// In the child: nothing that it throws may go on in its copy of record. What comes through the gate: "<number of
// variables>", then NAME=VALUE..., then argv.
[[noreturn]] void wait_and_exec(int gate, int result, const sigset_t& mask) noexcept {
  const auto text = read_all(gate, "gate");
  std::vector<std::string> words = text ? split(*text, '\0') : std::vector<std::string>{};
  const std::size_t variables = words.empty() ? 0 : parse_number<std::size_t>(words.front()).value_or(0);
  if (words.size() < variables + 2) _exit(125);  // record ended before it opened the gate
  for (std::size_t i = 1; i <= variables; ++i) {
    std::string_view value = words[i];
    const std::string name(take_until(value, '='));
    setenv(name.c_str(), std::string(value).c_str(), 1);
  }
  std::vector<std::string> command(words.begin() + static_cast<std::ptrdiff_t>(variables) + 1, words.end());
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  execvp(command.front().c_str(), pointers(command).data());
  const int reason = errno;
  if (write(result, &reason, sizeof reason) != sizeof reason) _exit(125);
  _exit(127);
}

// In the collector: nothing of record's may go on there.
int run_alone(const std::function<int()>& collect) {
  try {
    return collect();
  } catch (const std::exception&) {  // out of memory and the like; there is nowhere to report it
    return 1;
  }
}

Result<std::string> read_ready_line(int fd) {
  std::string line;
  const std::int64_t deadline_ns = monotonic_ns() + kReadyNs;
  while (!line.ends_with('\n')) {
    const std::int64_t left_ns = deadline_ns - monotonic_ns();
    pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
    if (left_ns <= 0 || poll(&entry, 1, static_cast<int>(left_ns / 1'000'000) + 1) == 0)
      return Error{"the collector does not answer"};
    std::array<char, 4096> bytes;
    const ssize_t got = read(fd, bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Error{"the collector ended before it was ready"};
    line.append(bytes.data(), static_cast<std::size_t>(got));
  }
  line.pop_back();
  if (line.starts_with('!')) return Error{line.substr(1)};
  if (!line.starts_with(kSessionEntry)) return Error{"the collector gave no session"};
  return line.substr(kSessionEntry.size());
}

}  // namespace

Result<GatedTarget> GatedTarget::fork_child(const sigset_t& mask) {
  auto gate = make_pipe();
  if (!gate) return Error{gate.error()};
  auto result = make_pipe();
  if (!result) return Error{result.error()};
  const pid_t pid = fork();
  if (pid < 0) return system_error("cannot start", "the command");
  if (pid == 0) {
    gate->second.reset();  // else it would wait for itself
    wait_and_exec(gate->first.get(), result->second.get(), mask);
  }
  GatedTarget target;
  target.pid_ = pid;
  target.gate_ = std::move(gate->second);
  target.result_ = std::move(result->first);
  return target;
}

int GatedTarget::exec(const std::vector<std::string>& command,
                      const std::vector<std::pair<std::string, std::string>>& environment) {
  std::string text = std::to_string(environment.size());
  text.push_back('\0');
  for (const auto& [name, value] : environment) {
    text += name;
    text += '=';
    text += value;
    text.push_back('\0');
  }
  for (const std::string& word : command) {
    text += word;
    text.push_back('\0');
  }
  write_fully(gate_.get(), text);
  gate_.reset();
  int reason = 0;
  ssize_t got = 0;
  do {
    got = read(result_.get(), &reason, sizeof reason);
  } while (got < 0 && errno == EINTR);
  if (got != sizeof reason) return 0;
  wait_for(pid_);
  return reason;
}

void GatedTarget::cancel() {
  gate_.reset();
  wait_for(pid_);
}

Result<CollectorLink> start_collector(const std::function<int(int ready_fd, int control_fd)>& collect) {
  auto ready = make_pipe();
  if (!ready) return Error{ready.error()};
  std::array<int, 2> sockets{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) != 0)
    return system_error("cannot make", "a socket");
  CollectorLink link;
  link.control = above_stdio(sockets[0]);
  const Fd theirs = above_stdio(sockets[1]);
  const pid_t middle = fork();
  if (middle < 0) return system_error("cannot start", "the collector");
  if (middle == 0) {
    setsid();
    if (fork() != 0) _exit(0);  // the collector is an orphan: no wait() of another process finds it
    _exit(run_alone([&] { return collect(ready->second.get(), theirs.get()); }));
  }
  wait_for(middle);
  ready->second.reset();
  auto session = read_ready_line(ready->first.get());
  if (!session) return Error{session.error()};
  link.session = std::move(*session);
  return link;
}

}  // namespace whyrss
