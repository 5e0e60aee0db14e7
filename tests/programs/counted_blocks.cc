// counted_blocks TRUTH ROUNDS: threads that make, resize and free buffers of 33 to 110 KB at such a rate that records
// of each would cost them time, and keep one of them now and then. Says at each stage what is live (heap_stage.h).
#include <malloc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>

#include "heap_stage.h"

namespace {

constexpr std::size_t kThreads = 2, kFrom = 33'000, kTo = 110'000;
// Of both threads: each writes to its own half.
constexpr std::size_t kMostKept = 1600;

[[gnu::noinline]] void* keep_often(std::size_t size) { return stage::touched(std::malloc(size)); }
[[gnu::noinline]] void* keep_rarely(std::size_t size) { return stage::touched(std::malloc(size)); }
[[gnu::noinline]] void* grow(void* block, std::size_t size) { return stage::touched(std::realloc(block, size)); }
[[gnu::noinline]] void* resize(void* block, std::size_t size) { return stage::checked(std::realloc(block, size)); }
[[gnu::noinline]] void* use_and_drop(std::size_t size) {
  void* block = stage::checked(std::malloc(size));
  *static_cast<volatile char*>(block) = 1;
  return block;
}

constexpr std::size_t kOften = 0, kRarely = 1, kGrown = 2, kLines = 3;
constexpr std::array<const char*, kLines> kNames{"keep_often", "keep_rarely", "grow"};

struct Kept {
  void* block;
  std::size_t line;
};

struct Shared {
  std::array<stage::Line, kLines> lines;
  std::array<Kept, kMostKept> kept;
  std::size_t rounds;
};
Shared* g_shared = nullptr;

void work(std::size_t number) {
  std::uint64_t random = 362436069 + number;
  Kept* kept = &g_shared->kept[number * kMostKept / kThreads];
  Kept* const end = kept + kMostKept / kThreads;
  std::array<void*, 16> alive{};
  const std::size_t every = std::max<std::size_t>(g_shared->rounds / (kMostKept / kThreads), 1);
  for (std::size_t round = 0; round < g_shared->rounds; ++round) {
    void*& slot = alive[stage::next_random(random) >> 11 & 15];
    if (round % 4 == 0) {
      slot = resize(slot, stage::random_size(random, kFrom, kTo));
      if (round % 4096 == 0 && std::realloc(slot, PTRDIFF_MAX) != nullptr) std::exit(3);  // it stays as it is
    } else {
      std::free(slot);
      slot = use_and_drop(stage::random_size(random, kFrom, kTo));
    }
    if (round % every != 0 || kept == end) continue;
    const std::size_t line = (stage::next_random(random) >> 11) % 8;
    const std::size_t size = stage::random_size(random, kFrom, kTo);
    if (line < 5)
      *kept++ = {keep_often(size), kOften};
    else if (line < 6)
      *kept++ = {keep_rarely(size), kRarely};
    else
      *kept++ = {grow(use_and_drop(size / 4), size), kGrown};
  }
  for (void* block : alive) std::free(block);
}

void count(stage::Line* lines) {
  for (std::size_t line = 0; line < kLines; ++line) lines[line] = {kNames[line], 0, 0};
  for (const Kept& kept : g_shared->kept) {
    if (kept.block == nullptr) continue;
    lines[kept.line].bytes += malloc_usable_size(kept.block);
    ++lines[kept.line].blocks;
  }
}

// By another thread than the one that made them.
void drop(bool (*is_dropped)(const Kept& kept)) {
  for (Kept& kept : g_shared->kept)
    if (kept.block != nullptr && is_dropped(kept)) std::free(kept.block), kept.block = nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 9;
  g_shared = static_cast<Shared*>(stage::map_table(sizeof(Shared)));
  g_shared->rounds = std::strtoull(argv[2], nullptr, 10);
  stage::open_truth(argv[1]);
  const auto write = [](const char* name) {
    count(g_shared->lines.data());
    stage::write(name, g_shared->lines.data(), kLines);
  };
  write("start");
  stage::run_threads(work, kThreads);
  write("live");
  drop([](const Kept& kept) { return kept.line == kOften; });
  write("fewer");
  drop([](const Kept&) { return true; });
  write("dropped");
}
