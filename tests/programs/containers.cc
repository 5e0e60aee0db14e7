// containers ROUNDS: churn of standard containers in two threads. Prints how many blocks they asked operator new for.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace {

std::atomic<unsigned long> g_allocations{0}, g_checksum{0};

template <class T>
struct Counting : std::allocator<T> {
  Counting() = default;
  template <class U>
  Counting(const Counting<U>&) {}  // NOLINT(google-explicit-constructor): what containers do with it
  T* allocate(std::size_t count) {
    g_allocations.fetch_add(1, std::memory_order_relaxed);
    return std::allocator<T>::allocate(count);
  }
};

using String = std::basic_string<char, std::char_traits<char>, Counting<char>>;
template <class T>
using Vector = std::vector<T, Counting<T>>;
using Map = std::map<int, String, std::less<>, Counting<std::pair<const int, String>>>;
using HashMap =
    std::unordered_map<int, Vector<int>, std::hash<int>, std::equal_to<>, Counting<std::pair<const int, Vector<int>>>>;

void churn(int rounds) {
  Map texts;
  HashMap lists;
  Vector<String> strings;
  unsigned long checksum = 0;
  for (int round = 0; round < rounds; ++round) {
    texts[round % 977] = String(static_cast<unsigned>(round % 90), 'x');
    lists[round % 1009].push_back(round);
    strings.emplace_back(static_cast<unsigned>(round % 300), 'y');
    if (round % 7 == 0) texts.erase(round % 491);
    if (round % 11 == 0) lists.erase(round % 503);
    if (round % 5000 == 4999) strings = {};
    checksum += texts.size() + lists.size() + strings.size();
  }
  g_checksum += checksum;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 100'000;
  std::thread other(churn, rounds / 2);
  churn(rounds);
  other.join();
  std::printf("%lu allocations, checksum %lu\n", g_allocations.load(), g_checksum.load());
}
