// hand_over TRUTH ROUNDS: four threads exchange small blocks of few sizes, so that each frees what another one made and
// the allocator hands the address on at once, to whichever thread comes; then says what is live (heap_stage.h).
#include <malloc.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "heap_stage.h"

namespace {

constexpr std::size_t kThreads = 4;
constexpr std::size_t kPlaces = 16;

std::atomic<void*>* g_places;
stage::Line* g_lines;  // one per thread, then their sum
std::size_t g_rounds;

// The name in the stack is the line that is looked for.
[[gnu::noinline]] void* make_block(std::size_t size) {
  void* block = std::malloc(size);
  if (block == nullptr) std::exit(3);
  std::memset(block, 1, malloc_usable_size(block));
  return block;
}

void exchange_blocks(std::size_t thread) {
  std::uint64_t random = 88172645463325252ULL + thread;
  stage::Line& line = g_lines[thread];
  for (std::size_t round = 0; round < g_rounds; ++round) {
    void* block = make_block(stage::random_size(random, 1, 4) * 48);
    line.bytes += malloc_usable_size(block);
    ++line.blocks;
    block = g_places[stage::random_size(random, 0, kPlaces)].exchange(block);
    if (block == nullptr) continue;
    line.bytes -= malloc_usable_size(block);  // may go below 0 here: the sum does not
    --line.blocks;
    std::free(block);
  }
}

}  // namespace

int main(int argument_count, char** arguments) {
  if (argument_count != 3) return 2;
  stage::open_truth(arguments[1]);
  g_rounds = std::strtoul(arguments[2], nullptr, 10);
  g_places = static_cast<std::atomic<void*>*>(stage::map_table(kPlaces * sizeof *g_places));
  g_lines = static_cast<stage::Line*>(stage::map_table((kThreads + 1) * sizeof *g_lines));
  stage::run_threads(exchange_blocks, kThreads);
  stage::Line& sum = g_lines[kThreads];
  sum.function = "make_block";
  for (std::size_t thread = 0; thread < kThreads; ++thread) {
    sum.bytes += g_lines[thread].bytes;
    sum.blocks += g_lines[thread].blocks;
  }
  stage::write("handed over", &sum, 1);
  return 0;
}
