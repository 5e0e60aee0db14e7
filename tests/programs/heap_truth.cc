// heap_truth TRUTH BLOCKS: fragments its heap in two threads, frees it, and has the allocator retain a lot, and says at
// each stage what is live (heap_stage.h). Every byte of every block is touched: what is live is resident.
#include <malloc.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include "heap_stage.h"

namespace {

constexpr std::size_t kThreads = 2;
constexpr std::size_t kMostBlocks = 4'000'000;

enum Kind : std::uint32_t { tiny, small, medium, large, record, kinds };

struct Held {
  void* block;
  Kind kind;
};

stage::Line* g_lines;  // kinds per thread, then their sums
Held* g_held;
std::size_t g_block_count;

// Functions of their own, never inlined or ended by a jump: the name in the stack is the line that is looked for.
template <class Allocate>
[[gnu::always_inline]] inline void* touched(Allocate allocate) {
  void* block = allocate();
  if (block == nullptr) std::exit(3);
  std::memset(block, 1, malloc_usable_size(block));
  return block;
}

[[gnu::noinline]] void* make_tiny(std::size_t size) {
  return touched([=] { return ::operator new(size); });
}
[[gnu::noinline]] void* make_small(std::size_t size) {
  return touched([=] { return std::malloc(size); });
}
[[gnu::noinline]] void* make_medium(std::size_t size) {
  return touched([=] { return std::realloc(std::malloc(size / 2), size); });
}
[[gnu::noinline]] void* make_large(std::size_t size) {
  return touched([=] {
    void* block = nullptr;
    return size % 3 == 0 && posix_memalign(&block, 256, size) == 0 ? block : std::calloc(1, size);
  });
}
[[gnu::noinline]] void* make_record(std::size_t size) {
  return touched([=] { return std::malloc(size); });
}

Held make(std::uint64_t& random) {
  const std::size_t picked = stage::random_size(random, 0, 1000);
  if (picked < 700) return {make_tiny(stage::random_size(random, 16, 256)), tiny};
  if (picked < 950) return {make_small(stage::random_size(random, 256, 4096)), small};
  if (picked < 995) return {make_medium(stage::random_size(random, 4096, 40'000)), medium};
  return {make_large(stage::random_size(random, 32'768, 1 << 20)), large};
}

void count(std::size_t thread, const Held& held) {
  stage::Line& line = g_lines[thread * kinds + held.kind];
  line.bytes += malloc_usable_size(held.block);
  ++line.blocks;
}

void release(std::size_t thread, Held& held) {
  if (held.block == nullptr) return;
  stage::Line& line = g_lines[thread * kinds + held.kind];  // may go below 0 here: the sum does not
  line.bytes -= malloc_usable_size(held.block);
  --line.blocks;
  held.kind == tiny ? ::operator delete(held.block) : std::free(held.block);
  held.block = nullptr;
}

void fill(std::size_t thread) {
  std::uint64_t random = 88172645463325252ULL + thread;
  for (std::size_t index = thread; index < g_block_count; index += kThreads) {
    g_held[index] = make(random);
    count(thread, g_held[index]);
  }
}

// 70 %, wherever they came from.
void thin_out(std::size_t thread) {
  std::uint64_t random = 1234567 + thread;
  const std::size_t half = g_block_count / kThreads;
  for (std::size_t index = thread * half; index < (thread + 1) * half; ++index)
    if (stage::random_size(random, 0, 10) < 7) release(thread, g_held[index]);
}

void release_all(std::size_t thread) {
  for (std::size_t index = kThreads - 1 - thread; index < g_block_count; index += kThreads)
    release(thread, g_held[index]);
}

// Records, and a text of them that grows; then all is dropped but every thousandth record.
void build_records() {
  std::uint64_t random = 42;
  std::size_t text_bytes = 0;
  char* text = nullptr;
  for (std::size_t index = 0; index < g_block_count; ++index) {
    const std::size_t size = stage::random_size(random, 40, 3000);
    g_held[index] = {make_record(size), record};
    count(0, g_held[index]);
    text = static_cast<char*>(std::realloc(text, text_bytes + 200));
    std::memset(text + text_bytes, 2, 200);
    text_bytes += 200;
  }
  std::free(text);
}

void drop_records() {
  for (std::size_t index = 0; index < g_block_count; ++index)
    if (index % 1000 != 0) release(0, g_held[index]);
}

void write(const char* name) {
  stage::Line* sums = g_lines + kThreads * kinds;
  for (std::size_t kind = 0; kind < kinds; ++kind) {
    sums[kind].bytes = sums[kind].blocks = 0;
    for (std::size_t thread = 0; thread < kThreads; ++thread) {
      sums[kind].bytes += g_lines[thread * kinds + kind].bytes;
      sums[kind].blocks += g_lines[thread * kinds + kind].blocks;
    }
  }
  stage::write(name, sums, kinds);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 9;
  g_block_count = std::strtoull(argv[2], nullptr, 10) / kThreads * kThreads;
  if (g_block_count == 0 || g_block_count > kMostBlocks) return 9;
  g_lines = static_cast<stage::Line*>(stage::map_table((kThreads + 1) * kinds * sizeof(stage::Line)));
  g_held = static_cast<Held*>(stage::map_table(g_block_count * sizeof(Held)));
  const char* const names[kinds] = {"make_tiny", "make_small", "make_medium", "make_large", "make_record"};
  for (std::size_t kind = 0; kind < kinds; ++kind) g_lines[kThreads * kinds + kind].function = names[kind];
  stage::open_truth(argv[1]);
  write("start");
  stage::run_threads(fill, kThreads);
  write("all live");
  stage::run_threads(thin_out, kThreads);
  write("70 % freed");
  stage::run_threads(release_all, kThreads);
  write("all freed");
  build_records();
  write("records live");
  drop_records();
  write("records dropped");
  malloc_trim(0);
  write("trimmed");
}
