#include "heap_stage.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string_view>

#include "shim/whyrss.h"

namespace stage {
namespace {

constexpr std::size_t kStackBytes = std::size_t{256} * 1024;
constexpr std::size_t kMostThreads = 8;
constexpr std::int64_t kServedNs = 490'000'000;  // whyrss_snapshot gives up after 0.5 s at the soonest
constexpr int kMostLooks = 20;

int g_truth = -1;

struct Anonymous {
  std::size_t allocator_bytes = 0;  // nameless and [heap], and what allocators give names to
  std::size_t whyrss_bytes = 0;
};

struct Start {
  Body body;
  std::size_t number;
};

// One line of smaps; `counted` is where the mapping that it belongs to is counted.
void read_line(std::string_view line, Anonymous& sum, std::size_t*& counted) {
  if (line.starts_with("Anonymous:")) {
    if (counted != nullptr) *counted += std::strtoull(line.data() + 10, nullptr, 10) * 1024;
    return;
  }
  const std::size_t dash = line.find('-');
  if (dash == std::string_view::npos || line.find(':') < dash || line.find(' ') < dash) return;
  const std::size_t name = line.find_first_of("[/");
  const std::string_view path = name == std::string_view::npos ? std::string_view() : line.substr(name);
  counted = nullptr;
  if (path.starts_with("[anon:whyrss"))
    counted = &sum.whyrss_bytes;
  else if (path.empty() || path.starts_with("[heap]") || path.starts_with("[anon:"))
    counted = &sum.allocator_bytes;
}

Anonymous read_anonymous() {
  static char* const buffer = static_cast<char*>(map_table(1 << 16));
  Anonymous sum;
  std::size_t* counted = nullptr;
  const int file = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
  std::size_t held = 0;
  for (;;) {
    const ssize_t got = read(file, buffer + held, (1 << 16) - 1 - held);
    if (got <= 0) break;
    held += static_cast<std::size_t>(got);
    buffer[held] = '\0';
    std::size_t begin = 0;
    for (std::size_t end = 0; (end = std::string_view(buffer, held).find('\n', begin)) != std::string_view::npos;
         begin = end + 1)
      read_line(std::string_view(buffer + begin, end - begin), sum, counted);
    std::memmove(buffer, buffer + begin, held - begin);
    held -= begin;
  }
  close(file);
  return sum;
}

std::int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
}

void have_looked() {
  if (whyrss_snapshot == nullptr) return;
  for (int walk = 0; walk < kMostLooks; ++walk) {
    const std::int64_t begin_ns = now_ns();
    whyrss_snapshot();
    if (now_ns() - begin_ns < kServedNs) return;
  }
}

void* run_thread(void* start) {
  const Start given = *static_cast<Start*>(start);
  given.body(given.number);
  return nullptr;
}

}  // namespace

void* map_table(std::size_t size_bytes) {
  void* table = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (table == MAP_FAILED) _exit(90);
  return table;
}

void open_truth(const char* path) {
  g_truth = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (g_truth < 0) _exit(91);
}

void write(const char* name, const Line* lines, std::size_t line_count) {
  static char* const text = static_cast<char*>(map_table(1 << 14));
  WHYRSS_PHASE_BEGIN(name);
  have_looked();
  const Anonymous anonymous = read_anonymous();
  WHYRSS_PHASE_END(name);
  have_looked();  // a walk of its own accord that began in the phase is over before anything changes
  int length = std::snprintf(text, 1 << 14, R"({"stage":"%s","allocator_bytes":%zu,"whyrss_bytes":%zu,"lines":{)", name,
                             anonymous.allocator_bytes, anonymous.whyrss_bytes);
  for (std::size_t index = 0; index < line_count; ++index) {
    const Line& line = lines[index];
    length += std::snprintf(text + length, (1 << 14) - static_cast<std::size_t>(length),
                            R"(%s"%s":{"bytes":%zu,"blocks":%zu})", index == 0 ? "" : ",", line.function, line.bytes,
                            line.blocks);
  }
  length += std::snprintf(text + length, (1 << 14) - static_cast<std::size_t>(length), "}}\n");
  if (::write(g_truth, text, static_cast<std::size_t>(length)) != length) _exit(92);
}

void run_threads(Body body, std::size_t count) {
  static std::array<void*, kMostThreads> stacks{};
  std::array<pthread_t, kMostThreads> threads{};
  std::array<Start, kMostThreads> starts{};
  for (std::size_t number = 0; number < count; ++number) {
    if (stacks.at(number) == nullptr) stacks.at(number) = map_table(kStackBytes);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, stacks.at(number), kStackBytes);
    starts.at(number) = {.body = body, .number = number};
    if (pthread_create(&threads.at(number), &attributes, run_thread, &starts.at(number)) != 0) _exit(93);
    pthread_attr_destroy(&attributes);
  }
  for (std::size_t number = 0; number < count; ++number) pthread_join(threads.at(number), nullptr);
}

}  // namespace stage
