#include "symbolize/module_reader.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>

namespace whyrss {
namespace {

// Enough for the line table of the largest libraries; a hostile file gets no more.
constexpr unsigned kCpuLimitSeconds = 20;
constexpr auto kWallLimit = std::chrono::seconds(60);
// Of one name and of all; longer text is cut off or ends the reading.
constexpr std::size_t kLongestText = 8192;
constexpr std::size_t kLargestAnswer = 256UL * 1024 * 1024;

void append(std::string& out, std::uint64_t value) { out.append(reinterpret_cast<const char*>(&value), sizeof value); }

void append(std::string& out, const std::string& text) {
  append(out, std::uint64_t{std::min(text.size(), kLongestText)});
  out.append(text, 0, kLongestText);
}

bool write_all(int fd, const std::string& bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = write(fd, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    done += static_cast<std::size_t>(count);
  }
  return true;
}

// What the process may still allocate. Not under AddressSanitizer, whose shadow counts as data.
constexpr std::uint64_t kMemoryLimitBytes = 2ULL * 1024 * 1024 * 1024;

void limit_memory() {
#ifndef __SANITIZE_ADDRESS__
  std::ifstream statm("/proc/self/statm");
  std::uint64_t data_pages = 0;
  for (int field = 0; field < 6; ++field) statm >> data_pages;  // the sixth: data + stack
  if (!statm) return;
  const rlim_t limit = data_pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)) + kMemoryLimitBytes;
  const rlimit data{limit, limit};
  setrlimit(RLIMIT_DATA, &data);
#endif
}

// Answers: 'n' address function file line, or 'e' text. One write per answer, so that what was found
// before a crash arrives.
[[noreturn]] void child(int pipe_fd, const Module& module, const std::vector<std::uint64_t>& addresses) {
  const int fd = fcntl(pipe_fd, F_DUPFD_CLOEXEC, 3);  // 0 to 2 are given away below
  if (fd < 0) _exit(1);
  limit_memory();
  const rlimit cpu{kCpuLimitSeconds, kCpuLimitSeconds}, core{0, 0};
  setrlimit(RLIMIT_CPU, &cpu);
  setrlimit(RLIMIT_CORE, &core);
  for (const int number : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL}) signal(number, SIG_DFL);
  // Parsers and demanglers print and abort as they like: not onto the user's terminal.
  const int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null_fd >= 0)
    for (const int standard : {0, 1, 2}) dup2(null_fd, standard);
  const Result<ElfNames> names = ElfNames::open(module.path, module.build_id);
  std::string answer;
  if (!names) {
    answer = "e";
    append(answer, names.error());
    write_all(fd, answer);
    _exit(0);
  }
  for (const std::uint64_t address : addresses) {
    const AddressName name = names->find(address);
    answer = "n";
    append(answer, name.address);
    append(answer, name.function);
    append(answer, name.file);
    append(answer, static_cast<std::uint64_t>(name.line));
    if (!write_all(fd, answer)) break;
  }
  _exit(0);
}

class Reader {
 public:
  explicit Reader(const std::string& bytes) : bytes_(bytes) {}
  [[nodiscard]] bool at_end() const { return at_ >= bytes_.size(); }
  char letter() { return bytes_[at_++]; }
  bool number(std::uint64_t& value) {
    if (bytes_.size() - at_ < sizeof value) return false;
    std::memcpy(&value, bytes_.data() + at_, sizeof value);
    at_ += sizeof value;
    return true;
  }
  bool text(std::string& value) {
    std::uint64_t size = 0;
    if (!number(size) || size > bytes_.size() - at_) return false;
    value.assign(bytes_, at_, size);
    at_ += size;
    return true;
  }

 private:
  const std::string& bytes_;
  std::size_t at_ = 0;
};

ModuleNames parse_answers(const std::string& bytes) {
  ModuleNames result;
  Reader reader(bytes);
  while (!reader.at_end()) {
    if (reader.letter() == 'e') {
      if (!reader.text(result.note)) break;
      continue;
    }
    AddressName name;
    std::uint64_t line = 0;
    if (!reader.number(name.address) || !reader.text(name.function) || !reader.text(name.file) || !reader.number(line))
      break;  // cut off by a crash: what came before stays
    name.line = line < 100'000'000 ? static_cast<int>(line) : 0;
    if (!name.function.empty() || name.line > 0) result.names.push_back(std::move(name));
  }
  return result;
}

// Whether the child ended its answer by itself in time.
bool read_until_end(int fd, std::string& bytes) {
  const auto deadline = std::chrono::steady_clock::now() + kWallLimit;
  std::array<char, 65536> buffer;
  while (bytes.size() < kLargestAnswer) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd waiting{fd, POLLIN, 0};
    const int ready = left.count() > 0 ? poll(&waiting, 1, static_cast<int>(left.count())) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t count = read(fd, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return count == 0;
    bytes.append(buffer.data(), static_cast<std::size_t>(count));
  }
  return false;
}

}  // namespace

ModuleNames read_module_names(const Module& module, const std::vector<std::uint64_t>& addresses) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return {{}, module.path + ": no pipe left to read its names"};
  const pid_t pid = fork();
  if (pid == 0) {
    close(ends[0]);
    child(ends[1], module, addresses);
  }
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    return {{}, module.path + ": cannot start a process to read its names"};
  }
  std::string bytes;
  const bool ended = read_until_end(ends[0], bytes);
  close(ends[0]);
  if (!ended) kill(pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  ModuleNames result = parse_answers(bytes);
  if (!ended || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
    result.note = module.path + ": damaged, or too slow to read; some of its functions have no names";
  return result;
}

}  // namespace whyrss
