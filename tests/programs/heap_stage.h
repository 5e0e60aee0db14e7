// What the programs that know their own heap share: stages, at each of which the pages are walked and the truth is
// written, as a line of JSON, to a file. Nothing here allocates for itself: tables lie in shared mappings, which are no
// heap.
#pragma once

#include <malloc.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace stage {

// The blocks that one function of the program made and that are live.
struct Line {
  const char* function = nullptr;
  std::size_t bytes = 0;  // as malloc_usable_size says
  std::size_t blocks = 0;
};

// Zeroed, shared, never given back.
void* map_table(std::size_t size_bytes);

// Ends the program when the file cannot be made.
void open_truth(const char* path);

// Waits until the collector has looked, as far as there is one. While it does, a phase of this name lasts.
void write(const char* name, const Line* lines, std::size_t line_count);

// A thread whose stack lies in a shared mapping.
using Body = void (*)(std::size_t number);
void run_threads(Body body, std::size_t count);

// A block, or the end of the program.
[[gnu::always_inline]] inline void* checked(void* block) {
  if (block == nullptr) std::exit(3);
  return block;
}

// All of it is resident then.
[[gnu::always_inline]] inline void* touched(void* block) {
  return std::memset(checked(block), 1, malloc_usable_size(block));
}

// xorshift64*.
inline std::uint64_t next_random(std::uint64_t& state) {
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return state * 0x2545f4914f6cdd1dULL;
}

// Uniform in [from, to).
inline std::size_t random_size(std::uint64_t& state, std::size_t from, std::size_t to) {
  return from + static_cast<std::size_t>(next_random(state) >> 11) % (to - from);
}

}  // namespace stage
