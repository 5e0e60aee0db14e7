// What walks one process cost the collector. Usage: walk_bench FOLDER MIB MOVED_MIB [SHAPE...]
// Prints per shape: name, then the median CPU ms of a walk when nothing has moved, and when MOVED_MIB have, each with
// its system part.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "collect/loop/process_follow.h"
#include "collect/read/process_presence.h"
#include "collect/read/pymalloc_pools.h"
#include "shim/trace/liveness_format.h"

namespace whyrss {
namespace {

constexpr std::uint64_t kPage = 4096, kMiB = 1024 * 1024, kPool = 16384;
constexpr int kLooks = 11, kAnswersFd = 100;
constexpr const char* kHold = "hold";

char* map(std::uint64_t bytes, int flags = MAP_PRIVATE | MAP_ANONYMOUS, int fd = -1,
          int protection = PROT_READ | PROT_WRITE) {
  void* at = mmap(nullptr, bytes, protection, flags, fd, 0);
  if (at == MAP_FAILED) std::exit(2);
  return static_cast<char*>(at);
}

void touch(char* at, std::uint64_t bytes) {
  for (std::uint64_t offset = 0; offset < bytes; offset += kPage) at[offset] = 1;
}

// A liveness table as the shim keeps it, in the process that is walked.
struct Table {
  trace::LivenessTable* head;
  std::uint64_t* directory;
  void set(const char* start, std::uint64_t bytes, std::uint32_t counter) {
    for (auto page = reinterpret_cast<std::uint64_t>(start) / kPage, end = page + bytes / kPage; page < end; ++page) {
      std::uint64_t& leaf = directory[page / trace::kLeafPages];
      if (leaf == 0) leaf = reinterpret_cast<std::uint64_t>(map(trace::kLeafBytes));
      reinterpret_cast<std::uint32_t*>(leaf)[page % trace::kLeafPages] = counter;
    }
  }
};

Table make_table() {
  Table table{reinterpret_cast<trace::LivenessTable*>(map(kPage)),
              reinterpret_cast<std::uint64_t*>(map(trace::kDirectoryEntries * sizeof(std::uint64_t)))};
  table.head->magic = trace::kLivenessMagic;
  table.head->directory = reinterpret_cast<std::uint64_t>(table.directory);
  return table;
}

constexpr std::uint32_t kHeldBlocks = 1U << 16 | 300;

void fill_small(Table& table, std::uint64_t bytes) {
  char* at = static_cast<char*>(sbrk(static_cast<std::intptr_t>(bytes)));
  touch(at, bytes);
  table.set(at, bytes, kHeldBlocks);
}
void fill_pools(Table& table, std::uint64_t bytes) {
  table.head->pymalloc_pool_bytes = kPool;
  char* at = map(bytes);
  at += (kPool - reinterpret_cast<std::uint64_t>(at) % kPool) % kPool;
  bytes -= kPool;
  touch(at, bytes);
  for (std::uint64_t offset = 0; offset < bytes; offset += kPool) {
    const PoolHead head{.live_blocks = 100,
                        .padding = 0,
                        .free_block = 0,
                        .next_pool = 0,
                        .previous_pool = 0,
                        .arena_index = 0,
                        .size_class = 3,
                        .next_offset = kPool - 64,
                        .most_next_offset = kPool - 64};
    std::memcpy(at + offset, &head, sizeof head);
  }
  table.set(at, bytes, trace::kPymallocPage << 16);
}
void fill_large(Table&, std::uint64_t bytes) { touch(map(bytes), bytes); }
void fill_huge(Table&, std::uint64_t bytes) {
  char* at = map(bytes);
  madvise(at, bytes, MADV_HUGEPAGE);
  touch(at, bytes);
}
void fill_relatives(Table&, std::uint64_t bytes) {
  touch(map(bytes), bytes);
  if (fork() == 0)
    while (true) pause();
}
void fill_own_and_relatives(Table& table, std::uint64_t bytes) {
  fill_relatives(table, bytes / 5);
  touch(map(bytes - bytes / 5), bytes - bytes / 5);
}
void fill_many_mappings(Table&, std::uint64_t bytes) {
  constexpr std::uint64_t kEach = 64 * 1024;
  char* at = map(bytes);
  touch(at, bytes);
  for (std::uint64_t offset = 0; offset < bytes; offset += 2 * kEach) mprotect(at + offset, kEach, PROT_READ);
}
void fill_file(Table&, std::uint64_t bytes, int flags) {
  const int fd = open("held", O_RDWR | O_CREAT | O_TRUNC, 0600);
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) std::exit(2);
  char* at = map(bytes, flags, fd, PROT_READ);
  for (std::uint64_t offset = 0; offset < bytes; offset += kPage) static_cast<volatile char*>(at)[offset];
}
void fill_shared_file(Table& table, std::uint64_t bytes) { fill_file(table, bytes, MAP_SHARED); }
void fill_private_file(Table& table, std::uint64_t bytes) { fill_file(table, bytes, MAP_PRIVATE); }

struct Shape {
  const char* name;
  void (*fill)(Table&, std::uint64_t);
  bool relatives = false;
};
constexpr Shape kShapes[] = {
    {"[heap] of small blocks", fill_small},
    {"pools of CPython", fill_pools},
    {"one large block", fill_large},
    {"one large block, huge pages", fill_huge},
    {"16384 mappings", fill_many_mappings},
    {"shared mapping of a file", fill_shared_file},
    {"private mapping of a file", fill_private_file},
    {"one large block, a fork child", fill_relatives, true},
    {"a fork child shares a fifth", fill_own_and_relatives, true},
};

// Holds the memory, and moves some more at each word.
[[noreturn]] void hold(const Shape& shape, std::uint64_t bytes, std::uint64_t moved) {
  Table table = make_table();
  shape.fill(table, bytes);
  const std::uint64_t address = reinterpret_cast<std::uint64_t>(table.head);
  char* next = map(moved * (kLooks + 1));
  if (write(kAnswersFd, &address, sizeof address) < 0) std::exit(2);
  for (char word = 0; read(STDIN_FILENO, &word, 1) == 1;) {
    touch(next, moved);
    if (shape.fill == fill_small) table.set(next, moved, kHeldBlocks);
    next += moved;
    if (write(kAnswersFd, &word, 1) < 0) break;
  }
  kill(0, SIGKILL);
  std::exit(0);
}

std::int64_t system_ns() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_stime.tv_sec * 1'000'000'000 + usage.ru_stime.tv_usec * 1000;
}

std::string median_ms(std::vector<std::int64_t> values) {
  std::ranges::sort(values);
  return fmt::format("{:.2f}", static_cast<double>(values[values.size() / 2]) / 1e6);
}

void measure(const Shape& shape, const std::string& folder, std::uint64_t bytes, std::uint64_t moved) {
  int words[2], answers[2];
  if (pipe(words) != 0 || pipe(answers) != 0) std::exit(2);
  const pid_t pid = fork();
  if (pid == 0) {
    setpgid(0, 0);
    dup2(words[0], STDIN_FILENO);
    dup2(answers[1], kAnswersFd);
    for (const int end : {words[0], words[1], answers[0], answers[1]}) close(end);
    // A program of its own: of this one's pages it would share some.
    execl("/proc/self/exe", "walk_bench", kHold, shape.name, std::to_string(bytes).c_str(),
          std::to_string(moved).c_str(), nullptr);
    _exit(2);
  }
  close(words[0]);
  close(answers[1]);
  std::uint64_t table = 0;
  if (read(answers[0], &table, sizeof table) != sizeof table) std::exit(2);
  BackingResolver resolver;
  WriteFaults faults(folder);
  const FollowContext context{.directory = folder,
                              .host = "bench",
                              .memory_group = {},
                              .session = {},
                              .methods = probe_walk_methods(),
                              .resolver = &resolver,
                              .faults = &faults};
  ProcessFollow follow(context, {.pid = static_cast<std::uint32_t>(pid), .start_ticks = *start_ticks_of(pid)}, pid);
  const auto walk = [&](std::vector<std::int64_t>& all, std::vector<std::int64_t>& system) {
    const std::int64_t before_ns = system_ns();
    all.push_back(
        follow.walk(trace::WalkTrigger::growth, table, shape.relatives ? Relatives::possible : Relatives::none));
    system.push_back(system_ns() - before_ns);
  };
  std::vector<std::int64_t> first, first_system, still, still_system, more, more_system;
  walk(first, first_system);
  for (int i = 0; i < kLooks; ++i) walk(still, still_system);
  for (int i = 0; i < kLooks; ++i) {
    char word = 0;
    if (write(words[1], &word, 1) != 1 || read(answers[0], &word, 1) != 1) std::exit(2);
    walk(more, more_system);
  }
  fmt::print("| {} | {} | {} ({}) | {} ({}) |\n", shape.name, median_ms(first), median_ms(still),
             median_ms(still_system), median_ms(more), median_ms(more_system));
  std::fflush(stdout);
  close(words[1]);
  close(answers[0]);
  waitpid(pid, nullptr, 0);
}

}  // namespace
}  // namespace whyrss

int main(int count, char** arguments) {
  if (count < 4) return 2;
  if (std::strcmp(arguments[1], whyrss::kHold) == 0)
    for (const auto& shape : whyrss::kShapes)
      if (std::strcmp(arguments[2], shape.name) == 0)
        whyrss::hold(shape, std::strtoull(arguments[3], nullptr, 10), std::strtoull(arguments[4], nullptr, 10));
  const std::string folder = arguments[1];
  if (chdir(folder.c_str()) != 0) return 2;
  for (const auto& shape : whyrss::kShapes) {
    const auto wanted = [&](const char* name) { return std::strcmp(name, shape.name) == 0; };
    if (count == 4 || std::any_of(arguments + 4, arguments + count, wanted))
      whyrss::measure(shape, folder, std::strtoull(arguments[2], nullptr, 10) * whyrss::kMiB,
                      std::strtoull(arguments[3], nullptr, 10) * whyrss::kMiB);
  }
}
