// What one native stack costs: ours beside libunwind and glibc, at a depth of the caller's choice, in the
// same place again ("hot") and after five calls that were not there before ("fresh"). The cost of the calls
// themselves is measured with an empty capture and taken off. Prints "method depth way nanoseconds" lines,
// one round; the runner alternates rounds.
//     stack_bench DEPTH        stack_bench threads
#define UNW_LOCAL_ONLY
#include <dlfcn.h>
#include <execinfo.h>
#include <libunwind.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "shim/events/caller.h"
#include "shim/events/own_memory_events.h"
#include "shim/observe/observe.h"
#include "shim/stacks/stack_scratch.h"
#include "shim/stacks/unwind_walk.h"
#include "shim/sys/own_memory.h"

namespace whyrss::shim {

// The shim reports its tables to the trace; here there is none.
void report_own_memory(ThreadState& /*thread*/, const void* /*memory*/, std::size_t /*size_bytes*/) noexcept {}

namespace {

constexpr int kFresh = 5;  // calls that differ from the stack before
constexpr std::uint64_t kSliceNs = 200'000;
constexpr int kSlices = 25;

double now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

thread_local StackScratch* t_scratch;
void* g_addresses[trace::kMaxNativeFrames];
std::uint64_t g_sum;  // so that nothing is optimised away

void take_nothing() { asm volatile("" ::: "memory"); }
void take_ours() {
  walk_native(caller_here(), *t_scratch);
  g_sum += t_scratch->memo.hash(t_scratch->memo.first());
}
void take_ours_unremembered() {
  t_scratch->memo.begin(0, false);
  take_ours();
}
void take_unw_backtrace() { g_sum += static_cast<std::uint64_t>(unw_backtrace(g_addresses, trace::kMaxNativeFrames)); }
using Backtrace = int (*)(void**, int);
Backtrace g_libc_backtrace;  // by its library: libunwind has a function of this name too
void take_backtrace() { g_sum += static_cast<std::uint64_t>(g_libc_backtrace(g_addresses, trace::kMaxNativeFrames)); }

using Take = void (*)();
struct Method {
  const char* name;
  Take take;
};
constexpr std::array<Method, 4> kMethods{{{"whyrss", take_ours},
                                          {"whyrss-no-memo", take_ours_unremembered},
                                          {"unw_backtrace", take_unw_backtrace},
                                          {"backtrace", take_backtrace}}};

// 64 functions of different frames that call one of each other: a path of random numbers is a random stack.
using Call = void (*)(const unsigned char* path, int depth, Take take);
extern const std::array<Call, 64> kCalls;
void loop_here(Take take);
Take g_loop;  // nullptr: take once

template <int kNumber>
[[gnu::noinline]] void call(const unsigned char* path, int depth, Take take) {
  char frame[16 + kNumber % 8 * 24];
  asm volatile("" : : "r"(&frame) : "memory");
  if (depth > 0)
    kCalls[path[depth] % kCalls.size()](path, depth - 1, take);
  else if (g_loop != nullptr)
    loop_here(take);
  else
    take();
  asm volatile("" : : "r"(&frame) : "memory");
}

template <std::size_t... kNumbers>
constexpr std::array<Call, sizeof...(kNumbers)> make_calls(std::index_sequence<kNumbers...>) {
  return {call<static_cast<int>(kNumbers)>...};
}
constexpr std::array<Call, 64> kCalls = make_calls(std::make_index_sequence<64>{});

bool g_fresh;
double g_best_ns;

[[gnu::noinline]] void once_hot(Take take) {
  take();
  asm volatile("" ::: "memory");
}

[[gnu::noinline]] void once_fresh(Take take, std::uint64_t& random) {
  random = random * 6364136223846793005ULL + 1442695040888963407ULL;
  std::array<unsigned char, 8> path{};
  std::memcpy(path.data(), &random, sizeof path);
  kCalls[path[7] % kCalls.size()](path.data(), kFresh - 2, take);
}

// The best of many short slices: what the neighbours of a shared machine take away is left out.
[[gnu::noinline]] void loop_here(Take take) {
  g_loop = nullptr;
  std::uint64_t random = 1;
  const auto run = [&](int count) {
    const double start = now_ns();
    for (int i = 0; i < count; ++i) {
      if (g_fresh)
        once_fresh(take, random);
      else
        once_hot(take);
    }
    return (now_ns() - start) / count;
  };
  const double estimate = std::max(run(200), 1.0);
  const int count = std::max(20, static_cast<int>(static_cast<double>(kSliceNs) / estimate));
  g_best_ns = 1e30;
  for (int slice = 0; slice < kSlices; ++slice) g_best_ns = std::min(g_best_ns, run(count));
}

double measure(Take take, bool fresh, int depth) {
  std::array<unsigned char, 256> path{};
  for (std::size_t i = 0; i < path.size(); ++i) path[i] = static_cast<unsigned char>(i * 37);
  g_fresh = fresh;
  g_loop = take;
  kCalls[0](path.data(), depth, take);
  return g_best_ns;
}

// How many calls deeper than main the loop is, so that stacks have exactly the depth asked for.
int frames_at(int depth) {
  static int frames;
  measure([] { frames = g_libc_backtrace(g_addresses, trace::kMaxNativeFrames) - 1; }, false, depth);
  return frames;
}

void measure_depth(int depth) {
  const int extra = frames_at(0);
  for (const bool fresh : {false, true}) {
    const int calls = std::max(0, depth - extra - (fresh ? kFresh - 1 : 0));
    const double bare_ns = measure(take_nothing, fresh, calls);
    for (const Method& method : kMethods)
      std::printf("%s %d %s %.2f\n", method.name, depth, fresh ? "fresh" : "hot",
                  std::max(0.0, measure(method.take, fresh, calls) - bare_ns));
  }
}

void measure_first_in_thread() {
  for (const Method& method : kMethods) {
    if (method.take == take_ours_unremembered) continue;
    double best_ns = 1e30;
    for (int round = 0; round < 200; ++round) {
      std::thread([&] {
        const double start = now_ns();
        if (method.take == take_ours) t_scratch = map_stack_scratch();
        std::array<unsigned char, 64> path{};
        kCalls[0](path.data(), 14, method.take);
        best_ns = std::min(best_ns, now_ns() - start);
        if (method.take == take_ours) unmap_own(t_scratch, sizeof(StackScratch));
      }).join();
    }
    std::printf("%s 20 first %.0f\n", method.name, best_ns);
  }
}

}  // namespace
}  // namespace whyrss::shim

int main(int argument_count, char** arguments) {
  using namespace whyrss::shim;
  if (argument_count != 2) return 2;
  g_libc_backtrace = reinterpret_cast<Backtrace>(dlsym(dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD), "backtrace"));
  start_unwind_walk();
  t_scratch = map_stack_scratch();
  if (std::strcmp(arguments[1], "threads") == 0)
    measure_first_in_thread();
  else
    measure_depth(std::atoi(arguments[1]));
  return g_sum == 0 ? 1 : 0;
}
