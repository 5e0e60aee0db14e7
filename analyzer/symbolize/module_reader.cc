#include "symbolize/module_reader.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <numeric>

#include "support/clock.h"
#include "support/file.h"
#include "symbolize/module_child.h"

namespace whyrss {
namespace {

constexpr int kMostChildren = 16;
// Of one file; a longer answer ends the reading.
constexpr std::size_t kLargestAnswer = 256UL * 1024 * 1024;

struct Child {
  std::size_t index = 0;  // of the module
  pid_t pid = 0;
  Fd pipe;
  std::int64_t deadline_ns = 0;
  std::string bytes;
  bool ended = false;  // the pipe's end was reached
  bool given_up = false;
};

int core_count() {
  cpu_set_t cores;
  const int count = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
  return std::clamp(count, 1, kMostChildren);
}

// The largest files first, so that none of them runs on alone at the end.
std::vector<std::size_t> reading_order(const std::vector<ModuleToRead>& modules) {
  std::vector<std::int64_t> sizes(modules.size());
  for (std::size_t i = 0; i < modules.size(); ++i) {
    struct stat status {};
    if (stat(modules[i].module.path.c_str(), &status) == 0) sizes[i] = status.st_size;
  }
  std::vector<std::size_t> order(modules.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return sizes[a] > sizes[b]; });
  return order;
}

Result<Child> start_child(const ModuleToRead& wanted, const ReadLimits& limits) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return Error{wanted.module.path + ": no pipe left to read its names"};
  Fd read_end(ends[0]), write_end(ends[1]);
  const pid_t pid = fork();
  if (pid < 0) return Error{wanted.module.path + ": cannot start a process to read its names"};
  if (pid == 0) {
    read_end.reset();
    read_module_as_child(write_end.get(), wanted, limits);
  }
  Child child;
  child.pid = pid;
  child.pipe = std::move(read_end);
  child.deadline_ns = monotonic_ns() + std::int64_t{limits.wall_s} * 1'000'000'000;
  return child;
}

void read_some(Child& child) {
  std::array<char, 65536> buffer;
  const ssize_t count = read(child.pipe.get(), buffer.data(), buffer.size());
  if (count < 0 && errno == EINTR) return;
  if (count > 0) child.bytes.append(buffer.data(), static_cast<std::size_t>(count));
  child.ended = count == 0;
  child.given_up = count < 0 || child.bytes.size() > kLargestAnswer;
}

// Until one of them has something to say or has to be given up.
void wait_for_any(std::vector<Child>& children) {
  std::vector<pollfd> waiting;
  std::int64_t deadline_ns = children.front().deadline_ns;
  for (const Child& child : children) {
    waiting.push_back({child.pipe.get(), POLLIN, 0});
    deadline_ns = std::min(deadline_ns, child.deadline_ns);
  }
  const std::int64_t left_ms = std::max<std::int64_t>(0, deadline_ns - monotonic_ns()) / 1'000'000 + 1;
  const int ready = poll(waiting.data(), waiting.size(), static_cast<int>(left_ms));
  for (std::size_t i = 0; i < children.size(); ++i) {
    if (ready > 0 && waiting[i].revents != 0) read_some(children[i]);
    if (monotonic_ns() >= children[i].deadline_ns) children[i].given_up = true;
  }
}

ModuleAnswer finish_child(Child& child, const Module& module, const ReadLimits& limits) {
  if (!child.ended) kill(child.pid, SIGKILL);
  int status = 0;
  while (waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  bool finished = false;
  ModuleAnswer answer = parse_module_answer(child.bytes, finished);
  if (!finished) {
    answer.names.cut_at_cpu_s = limits.cpu_s;
    answer.note = module.path + ": damaged, or too slow to read; some of its functions have no names";
  }
  return answer;
}

}  // namespace

std::vector<ModuleAnswer> read_modules(const std::vector<ModuleToRead>& modules, const ReadLimits& limits) {
  std::vector<ModuleAnswer> answers(modules.size());
  const std::vector<std::size_t> order = reading_order(modules);
  const auto at_once = static_cast<std::size_t>(core_count());
  std::vector<Child> children;
  std::size_t next = 0;
  while (next < order.size() || !children.empty()) {
    while (next < order.size() && children.size() < at_once) {
      const std::size_t index = order[next++];
      Result<Child> child = start_child(modules[index], limits);
      if (!child) {
        answers[index].note = child.error();
        continue;
      }
      child->index = index;
      children.push_back(std::move(*child));
    }
    if (children.empty()) continue;
    wait_for_any(children);
    for (Child& child : children)
      if (child.ended || child.given_up)
        answers[child.index] = finish_child(child, modules[child.index].module, limits);
    std::erase_if(children, [](const Child& child) { return child.ended || child.given_up; });
  }
  return answers;
}

}  // namespace whyrss
