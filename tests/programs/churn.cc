// churn [ROUNDS]: threads that allocate, resize and release each other's blocks, map and unmap, fork, and are
// interrupted by signal handlers that allocate. Prints what it checked: the same with and without the library.
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

constexpr unsigned kThreads = 6;
constexpr std::size_t kSharedBlocks = 64;

struct Block {
  std::size_t size_bytes;
  unsigned char mark;
};

std::array<std::atomic<Block*>, kSharedBlocks> g_shared{};  // handed from thread to thread
std::atomic<unsigned long> g_damaged{0}, g_failed_children{0}, g_children{0};
std::atomic<unsigned> g_running{0};

// Sizes on both sides of what is logged (32 KiB), of glibc's mmap threshold, and in between.
std::size_t size_of(std::uint32_t random) {
  constexpr std::array<std::size_t, 8> kSizes{24, 200, 3000, 30'000, 33'000, 90'000, 200'000, 700'000};
  return kSizes[random % kSizes.size()] + random / 8 % 97;
}

Block* make(std::uint32_t random) {
  const std::size_t size_bytes = sizeof(Block) + size_of(random);
  const auto mark = static_cast<unsigned char>(random >> 24);
  void* memory = nullptr;
  switch (random / 1024 % 4) {
    case 0:
      memory = std::malloc(size_bytes);
      break;
    case 1:
      memory = std::calloc(1, size_bytes);
      break;
    case 2:
      if (posix_memalign(&memory, 256, size_bytes) != 0) memory = nullptr;
      break;
    default:
      memory = std::realloc(std::malloc(40'000), size_bytes);
  }
  auto* block = static_cast<Block*>(memory);
  *block = {.size_bytes = size_bytes, .mark = mark};
  auto* bytes = static_cast<unsigned char*>(memory);
  bytes[sizeof(Block)] = bytes[size_bytes - 1] = mark;
  return block;
}

void check_and_release(Block* block) {
  if (block == nullptr) return;
  const auto* bytes = reinterpret_cast<const unsigned char*>(block);
  if (bytes[sizeof(Block)] != block->mark || bytes[block->size_bytes - 1] != block->mark) ++g_damaged;
  std::free(block);
}

Block* resize(Block* block, std::uint32_t random) {
  const unsigned char mark = block->mark;
  const std::size_t size_bytes = sizeof(Block) + size_of(random);
  block = static_cast<Block*>(std::realloc(block, size_bytes));
  if (block->mark != mark || reinterpret_cast<unsigned char*>(block)[sizeof(Block)] != mark) ++g_damaged;
  block->size_bytes = size_bytes;
  reinterpret_cast<unsigned char*>(block)[size_bytes - 1] = mark;
  return block;
}

void map_and_unmap(std::uint32_t random) {
  const std::size_t size_bytes = (1 + random % 300) * 4096;
  void* mapped = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::memset(mapped, 1, 4096);
  mapped = mremap(mapped, size_bytes, 2 * size_bytes, MREMAP_MAYMOVE);
  if (mapped == MAP_FAILED || *static_cast<char*>(mapped) != 1 || munmap(mapped, 2 * size_bytes) != 0) ++g_damaged;
}

void fork_a_child(std::uint32_t random) {
  ++g_children;
  const pid_t child = fork();
  if (child == 0) {
    for (std::uint32_t round = 0; round < 20; ++round) check_and_release(make(random + round));
    map_and_unmap(random);
    _exit(g_damaged == 0 ? 7 : 8);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 7)
    ++g_failed_children;
}

void churn(unsigned number, unsigned rounds) {
  std::uint32_t random = number * 2654435761U + 1;
  for (unsigned round = 0; round < rounds; ++round) {
    random = random * 1664525 + 1013904223;
    const std::uint32_t picked = random >> 8;
    if (picked % 64 == 0) map_and_unmap(picked);
    if (picked % 4096 == 1) fork_a_child(picked);
    Block* block = make(random);
    if (picked % 3 == 0) block = resize(block, picked);
    check_and_release(g_shared[picked % kSharedBlocks].exchange(block));
  }
  --g_running;
}

// Allocates where no allocator call is interrupted: the thread that gets the signals only waits.
void allocate_in_handler(int) {
  void* block = std::malloc(50'000);
  std::free(block);
}

}  // namespace

int main(int argc, char** argv) {
  const unsigned rounds = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 20'000;
  struct sigaction action {};
  action.sa_handler = allocate_in_handler;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR1, &action, nullptr);
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  g_running = kThreads;
  std::vector<std::thread> threads;
  for (unsigned number = 0; number < kThreads; ++number) threads.emplace_back(churn, number, rounds);
  // Waves of threads that live for one block each, while signals arrive here.
  while (g_running > 0) {
    std::thread(check_and_release, make(4242)).join();
    pthread_kill(pthread_self(), SIGUSR1);
    pthread_sigmask(SIG_UNBLOCK, &blocked, nullptr);
    usleep(200);
    pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  }
  for (std::thread& thread : threads) thread.join();
  for (std::atomic<Block*>& shared : g_shared) check_and_release(shared.exchange(nullptr));
  std::printf("%lu children, %lu failed, %lu blocks damaged\n", g_children.load(), g_failed_children.load(),
              g_damaged.load());
  return g_failed_children + g_damaged == 0 ? 0 : 1;
}
