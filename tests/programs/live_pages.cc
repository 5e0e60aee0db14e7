// live_pages THREADS ROUNDS: threads that allocate, resize and release blocks of random sizes by all kinds of calls and
// then hold some of them. Prints one line a held block, "address usable", and "held"; waits for a byte on stdin,
// releases all, prints "released" and waits again. The reader compares with what it finds in the memory of the process.
#include <malloc.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <thread>

namespace {

constexpr std::size_t kSlots = 500;
constexpr std::align_val_t kAligned{64};

enum class Kind { malloc, calloc, posix_memalign, make, make_array, make_aligned, resized };
constexpr unsigned kKinds = 7;

struct Block {
  void* address = nullptr;
  Kind kind = Kind::malloc;
};

class Churn {
 public:
  void run(unsigned number, unsigned rounds) {
    random_ = number * 2654435761U + 12345;
    for (unsigned round = 0; round < rounds; ++round) {
      Block& block = blocks_[next() % kSlots];
      release(block);
      block = allocate(static_cast<Kind>(next() % kKinds), size());
    }
  }
  void print() const {
    for (const Block& block : blocks_)
      if (block.address != nullptr)
        std::printf("%lx %zu\n", reinterpret_cast<unsigned long>(block.address), malloc_usable_size(block.address));
  }
  void release_all() {
    for (Block& block : blocks_) release(block);
  }

 private:
  std::uint32_t next() { return (random_ = random_ * 1664525 + 1013904223) >> 8; }
  // Mostly small; pages' worth; around the size from which on blocks are logged one by one.
  std::size_t size() {
    const std::uint32_t pick = next() % 16;
    return pick < 12 ? next() % 600 : pick < 15 ? next() % 20'000 : 30'000 + next() % 5'000;
  }
  static Block allocate(Kind kind, std::size_t size) {
    Block block{.kind = kind};
    switch (kind) {
      case Kind::malloc:
        block.address = std::malloc(size);
        break;
      case Kind::calloc:
        block.address = std::calloc(3, size / 3);
        break;
      case Kind::posix_memalign:
        if (posix_memalign(&block.address, 128, size) != 0) block.address = nullptr;
        break;
      case Kind::make:
        block.address = ::operator new(size);
        break;
      case Kind::make_array:
        block.address = ::operator new[](size);
        break;
      case Kind::make_aligned:
        block.address = ::operator new(size, kAligned);
        break;
      case Kind::resized:
        block.address = std::realloc(std::realloc(nullptr, size / 2 + 1), size + 1);
        break;
    }
    return block;
  }
  static void release(Block& block) {
    switch (block.kind) {
      case Kind::make:
        ::operator delete(block.address);
        break;
      case Kind::make_array:
        ::operator delete[](block.address);
        break;
      case Kind::make_aligned:
        ::operator delete(block.address, kAligned);
        break;
      default:
        std::free(block.address);
    }
    block.address = nullptr;
  }

  std::uint32_t random_ = 0;
  std::array<Block, kSlots> blocks_{};
};

constexpr unsigned kMostThreads = 8;
std::array<Churn, kMostThreads> g_churns;

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 || std::atoi(argv[1]) > static_cast<int>(kMostThreads)) return 9;
  static char buffer[1 << 16];
  setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
  const unsigned threads = static_cast<unsigned>(std::atoi(argv[1]));
  const unsigned rounds = static_cast<unsigned>(std::atoi(argv[2]));
  char byte = 0;
  // What the C library and the runtime keep is there before and after.
  std::thread([] {}).join();
  std::printf("ready\n");
  std::fflush(stdout);
  if (read(0, &byte, 1) != 1) return 1;
  std::array<std::thread, kMostThreads> running;
  for (unsigned number = 1; number < threads; ++number)
    running[number] = std::thread([=] { g_churns[number].run(number, rounds); });
  g_churns[0].run(0, rounds);
  for (std::thread& thread : running)
    if (thread.joinable()) thread.join();
  for (const Churn& churn : g_churns) churn.print();
  std::printf("held\n");
  std::fflush(stdout);
  if (read(0, &byte, 1) != 1) return 1;
  for (Churn& churn : g_churns) churn.release_all();
  std::printf("released\n");
  std::fflush(stdout);
  return read(0, &byte, 1) == 1 ? 0 : 1;
}
