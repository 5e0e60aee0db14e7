// pthread_create: the start routine is wrapped, so that the new thread says where its stack lies and who
// created it. The wrapper leaves by a tail call: pthread_exit, cancellation and unwinding see the
// program's routine right above the thread's start.
#include <pthread.h>

#include <array>
#include <atomic>

#include "shim/events/caller.h"
#include "shim/hooks/entry_allocate.h"
#include "shim/process/process_events.h"
#include "shim/process/session.h"
#include "shim/sys/real.h"

namespace whyrss::shim {
namespace {

// Between pthread_create and the thread's first instruction of the program. When all are taken (that many threads
// created and not yet started) a thread runs unwrapped.
struct Start {
  std::atomic<bool> taken;
  StartRoutine routine;
  void* argument;
  ThreadCreation creation;
};
constinit std::array<Start, 256> g_starts{};

Start* take_start() noexcept {
  for (Start& start : g_starts)
    if (!start.taken.load(std::memory_order_relaxed) && !start.taken.exchange(true, std::memory_order_acquire))
      return &start;
  return nullptr;
}

std::uint32_t count_starting() noexcept {
  std::uint32_t count = 0;
  for (const Start& start : g_starts) count += start.taken.load(std::memory_order_relaxed) ? 1 : 0;
  return count;
}

// The record, apart from the wrapper so that nothing of it stays on the thread's stack.
[[gnu::noinline]] void announce_thread(ThreadCreation creation) noexcept {
  observe_thread_start(creation, __builtin_frame_address(0));
}

void* run_thread(void* wrapped) {
  auto* start = static_cast<Start*>(wrapped);
  const StartRoutine routine = start->routine;
  void* argument = start->argument;
  const ThreadCreation creation = start->creation;
  announce_thread(creation);
  start->taken.store(false, std::memory_order_release);
  return routine(argument);
}

}  // namespace
}  // namespace whyrss::shim

using namespace whyrss::shim;  // NOLINT(google-build-using-namespace): entries are global C functions

WHYRSS_ENTRY int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, StartRoutine routine,
                                void* argument) noexcept {
  resolve_real();
  if (real.pthread_create == nullptr) {
    resolve_libc_again();
    watch_thread_ends();
  }
  const ThreadCreation creation = observe_thread_creation(caller_here(), count_starting());
  Start* start = take_start();
  if (start == nullptr) return real.pthread_create(thread, attributes, routine, argument);
  start->routine = routine;
  start->argument = argument;
  start->creation = creation;
  const int error = real.pthread_create(thread, attributes, run_thread, start);
  if (error != 0) start->taken.store(false, std::memory_order_release);
  return error;
}
