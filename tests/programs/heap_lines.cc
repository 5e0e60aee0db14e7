// heap_lines TRUTH MIB: about that much live, by lines of 50, 30, 10, 8, 1 and 1 % of it, in blocks of different sizes;
// half of what each line makes is released again. Says what is live (heap_stage.h).
#include <malloc.h>

#include <array>
#include <cstdint>
#include <cstdlib>

#include "heap_stage.h"

namespace {

[[gnu::noinline]] void* make_half(std::size_t size) { return stage::touched(std::malloc(size)); }
[[gnu::noinline]] void* make_third(std::size_t size) { return stage::touched(std::malloc(size)); }
[[gnu::noinline]] void* make_tenth(std::size_t size) { return stage::touched(std::malloc(size)); }
[[gnu::noinline]] void* make_large(std::size_t size) { return stage::touched(std::malloc(size)); }
[[gnu::noinline]] void* make_rare_small(std::size_t size) { return stage::touched(std::malloc(size)); }
[[gnu::noinline]] void* make_rare_middle(std::size_t size) { return stage::touched(std::malloc(size)); }

struct Maker {
  void* (*make)(std::size_t);
  std::size_t percent, from_bytes, to_bytes;
  const char* name;
};

constexpr std::array<Maker, 6> kMakers{{
    {make_half, 50, 16, 512, "make_half"},
    {make_third, 30, 1024, 32'000, "make_third"},
    {make_tenth, 10, 100, 2000, "make_tenth"},
    {make_large, 8, 100'000, 1'000'000, "make_large"},
    {make_rare_small, 1, 16, 64, "make_rare_small"},
    {make_rare_middle, 1, 2000, 8000, "make_rare_middle"},
}};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 9;
  const std::size_t wanted = std::strtoull(argv[2], nullptr, 10) << 20;
  auto* lines = static_cast<stage::Line*>(stage::map_table(kMakers.size() * sizeof(stage::Line)));
  for (std::size_t index = 0; index < kMakers.size(); ++index) lines[index].function = kMakers[index].name;
  stage::open_truth(argv[1]);
  stage::write("start", lines, kMakers.size());
  std::uint64_t random = 362436069;
  // In turns of a hundredth each, so that the lines' blocks lie between each other's.
  for (std::size_t turn = 1; turn <= 100; ++turn) {
    for (std::size_t index = 0; index < kMakers.size(); ++index) {
      const Maker& site = kMakers[index];
      while (lines[index].bytes < wanted / 100 * site.percent / 100 * turn) {
        void* kept = site.make(stage::random_size(random, site.from_bytes, site.to_bytes));
        void* dropped = site.make(stage::random_size(random, site.from_bytes, site.to_bytes));
        lines[index].bytes += malloc_usable_size(kept);
        ++lines[index].blocks;
        std::free(dropped);
      }
    }
  }
  stage::write("live", lines, kMakers.size());
}
