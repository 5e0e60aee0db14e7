// heap_hazards TRUTH WHAT [ARGUMENTS]: what programs do to allocators. What it prints is the same in every run with the
// same allocator. It keeps blocks of known sizes before and after, and says so at two stages (heap_stage.h).
#include "heap_hazards.h"

#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include "heap_stage.h"

namespace hazards {

char** g_arguments;

void say(const char* text) {
  if (write(STDOUT_FILENO, text, std::strlen(text)) < 0) _exit(95);
}
void say(const char* text, long number) {
  std::array<char, 200> line{};
  std::snprintf(line.data(), line.size(), "%s %ld\n", text, number);
  say(line.data());
}

void churn(unsigned rounds) {
  std::array<void*, 64> blocks{};
  std::uint64_t random = 7;
  for (unsigned round = 0; round < rounds; ++round) {
    void*& block = blocks.at(stage::random_size(random, 0, blocks.size()));
    std::free(block);
    block = std::malloc(stage::random_size(random, 1, round % 16 == 0 ? 60'000 : 500));
  }
  for (void* block : blocks) std::free(block);
}

namespace {

stage::Line* g_lines;
volatile std::size_t g_huge = SIZE_MAX;  // no compiler knows that it is too much

void* counted(std::size_t line, void* block) {
  if (block == nullptr) _exit(96);
  const std::size_t size = malloc_usable_size(block);
  std::memset(block, 1, size);
  g_lines[line].bytes += size;
  ++g_lines[line].blocks;
  return block;
}
[[gnu::noinline]] void* keep_small() { return counted(0, std::malloc(3000)); }
[[gnu::noinline]] void* keep_large() { return counted(1, std::malloc(140'000)); }

void keep() {
  for (int count = 0; count < 100; ++count) keep_small();
  for (int count = 0; count < 8; ++count) keep_large();
}

// Mistakes of the program, which allocators may find or not. Whatever the allocator does after one is chance.

[[noreturn]] void leave() {
  say("went on\n");
  std::exit(8);
}

void double_free() {
  void* block = std::malloc(100);
  std::free(block);
  std::free(block);
  leave();
}

void double_free_large() {
  void* block = std::malloc(40'000);
  void* behind = std::malloc(40'000);
  std::free(block);
  std::free(block);
  std::free(behind);
  leave();
}

void foreign_free() {
  static std::array<std::uint64_t, 64> foreign{};
  std::free(foreign.data() + 32);
  leave();
}

void middle_free() {
  auto* block = static_cast<char*>(std::malloc(1000));
  std::memset(block, 0, 1000);
  std::free(block + 496);
  leave();
}

// Requests at the edges.

void edges() {
  long nulls = 0;
  for (int round = 0; round < 1000; ++round) {
    void* block = std::malloc(static_cast<std::size_t>(round) * 50);
    block = std::realloc(block, 0);
    nulls += block == nullptr;
    std::free(block);
    std::free(std::calloc(0, 5));
    std::free(std::malloc(0));
    std::free(std::realloc(nullptr, 0));
    std::free(nullptr);
  }
  say("of 1000 realloc(p, 0) gave null:", nulls);
  void* block = nullptr;
  say("alignment of 3:", posix_memalign(&block, 3, 100));
  say("usable of null:", static_cast<long>(malloc_usable_size(nullptr)));
  for (std::size_t alignment = 16; alignment <= 1 << 20; alignment *= 2) {
    if (posix_memalign(&block, alignment, 1000) != 0 || reinterpret_cast<std::uintptr_t>(block) % alignment != 0)
      say("not aligned:", static_cast<long>(alignment));
    block = std::realloc(block, 5000);
    std::free(block);
  }
}

void too_much() {
  auto* kept = static_cast<char*>(std::malloc(5000));
  for (const std::size_t size : {g_huge, g_huge / 2, g_huge / 2 - 4096, g_huge / 4}) {
    errno = 0;
    void* block = std::malloc(size);
    say(block == nullptr ? "malloc: null, errno" : "malloc: a block, errno", errno);
    errno = 0;
    say(std::realloc(kept, size) == nullptr ? "realloc: null, errno" : "realloc: a block, errno", errno);
    say(posix_memalign(&block, 64, size) != 0 ? "posix_memalign fails\n" : "posix_memalign gives a block\n");
    try {
      ::operator delete(::operator new(size));
      say("new: a block\n");
    } catch (const std::bad_alloc&) {
      say("new: bad_alloc\n");
    }
    say(::operator new(size, std::nothrow) == nullptr ? "new: null\n" : "new: a block\n");
  }
  say(std::calloc(g_huge / 2, 3) == nullptr ? "calloc: null\n" : "calloc: a block\n");
  say(reallocarray(nullptr, g_huge / 2, 3) == nullptr ? "reallocarray: null\n" : "reallocarray: a block\n");
  std::free(kept);
}

// Runs into a limit twice, with large and with small blocks, and goes on.
void out_of_memory() {
  rlimit old{};
  getrlimit(RLIMIT_AS, &old);
  for (const std::size_t size : {std::size_t{1} << 20, std::size_t{1000}}) {
    unsigned long pages = 0;
    std::FILE* statm = std::fopen("/proc/self/statm", "r");
    if (statm == nullptr || std::fscanf(statm, "%lu", &pages) != 1) _exit(97);
    std::fclose(statm);
    const rlimit limit{.rlim_cur = pages * 4096 + (std::size_t{48} << 20), .rlim_max = old.rlim_max};
    setrlimit(RLIMIT_AS, &limit);
    void** list = nullptr;
    for (;;) {
      errno = 0;
      auto** next = static_cast<void**>(std::malloc(size));
      if (next == nullptr) break;
      *next = static_cast<void*>(list);
      list = next;
    }
    const int error = errno;
    void* large = std::malloc(std::size_t{1} << 30);
    while (list != nullptr) std::free(std::exchange(list, static_cast<void**>(*list)));
    setrlimit(RLIMIT_AS, &old);
    say("ran out, errno", error);
    say(large == nullptr ? "and nothing larger\n" : "but something larger\n");
  }
  churn(1000);
}

struct Hazard {
  std::string_view name;
  void (*run)();
};
constexpr Hazard kHazards[] = {
    {"double_free", double_free},
    {"double_free_large", double_free_large},
    {"foreign_free", foreign_free},
    {"middle_free", middle_free},
    {"edges", edges},
    {"too_much", too_much},
    {"out_of_memory", out_of_memory},
    {"handlers", handlers},
    {"handlers_anywhere", handlers_anywhere},
    {"jumps", jumps},
    {"jumps_anywhere", jumps_anywhere},
    {"thread_ends", thread_ends},
    {"many_threads", many_threads},
    {"after_main", after_main},
    {"plugin_gone", plugin_gone},
    {"plugin_deep", plugin_deep},
    {"plugin_deep_crossed", plugin_deep_crossed},
    {"forks", forks},
    {"programs", programs},
    {"endless", endless},
};

}  // namespace

int run(int argc, char** argv) {
  if (argc < 3) return 9;
  g_arguments = argv + 3;
  g_lines = static_cast<stage::Line*>(stage::map_table(2 * sizeof(stage::Line)));
  g_lines[0].function = "keep_small";
  g_lines[1].function = "keep_large";
  stage::open_truth(argv[1]);
  for (const Hazard& hazard : kHazards) {
    if (hazard.name != argv[2]) continue;
    keep();
    stage::write("before", g_lines, 2);
    hazard.run();
    keep();
    stage::write("after", g_lines, 2);
    return 7;
  }
  return 9;
}

}  // namespace hazards

int main(int argc, char** argv) { return hazards::run(argc, argv); }
