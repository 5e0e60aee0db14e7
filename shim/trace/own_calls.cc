#include "own_calls.h"

namespace whyrss::trace {

constinit KernelDoor g_kernel_door{};
constinit thread_local bool t_kernel_closed = false;

namespace {

// Visits take microseconds. One that takes longer (it waits for the reader) is not waited for: only a filter for all
// threads would meet it.
constexpr int kMostPauses = 200'000;  // a few ms

}  // namespace

void close_kernel() noexcept {
  g_kernel_door.closed.store(true, std::memory_order_seq_cst);
  for (int left = kMostPauses; left > 0 && g_kernel_door.visits.load(std::memory_order_seq_cst) != 0; --left)
    __builtin_ia32_pause();
}

void open_kernel() noexcept { g_kernel_door.closed.store(false, std::memory_order_seq_cst); }

void forget_visits() noexcept { g_kernel_door.visits.store(0, std::memory_order_seq_cst); }

}  // namespace whyrss::trace
