// Pages that the kernel makes resident within one call: the page-fault events, of user mode, do not see them. Counted
// by the thread's minor faults before and after (getrusage(2), some 0.2 us together with what a call costs anyway).
// Any thread, signal handlers, before main, vfork children (nothing is reported there). Nothing is held during the
// call: the thread may be cancelled in it, or leave it by longjmp. errno stays.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shim/events/caller.h"

namespace whyrss::shim {

struct KernelFaultSettings {
  std::atomic<bool> counted{false};
  std::atomic<bool> future_locked{false};            // mlockall(MCL_FUTURE): each mapping is filled at once
  std::atomic<std::uint32_t> close_measurements{0};  // that are still to be made of short distances
  std::atomic<std::uint32_t> wide_log2{0};           // of the bytes from one to the next
};

extern constinit KernelFaultSettings g_kernel_faults;

// Once per image. One read is measured for some `period_faults` * 8 KiB that are read, so
// that it costs less than 3 % of any read loop; 0: the first thousands closely, as for sampled faults.
void start_kernel_faults(std::uint32_t period_faults) noexcept;
inline void stop_kernel_faults() noexcept { g_kernel_faults.counted.store(false, std::memory_order_release); }

// Reads of less bring a page or two at most.
inline constexpr std::size_t kSmallestMeasuredRead = 4096;

// For how many reads of that size this one is to stand; 0: it is not measured.
std::uint32_t draw_read_weight(std::size_t size_bytes) noexcept;

class KernelFaults {
 public:
  // Begins to count. 0: does nothing.
  explicit KernelFaults(std::uint32_t weight_calls) noexcept;
  // After the call, before anything of ours can fault.
  void end() noexcept;
  // What the call was about.
  void log(const Caller& caller, const void* address, std::size_t size_bytes) const noexcept;
  // The call filled `size_bytes` of these buffers. Their array is read with care: only the kernel has read it so far.
  void report_vector(const Caller& caller, const iovec* buffers, std::size_t count,
                     std::size_t size_bytes) const noexcept;
  void report_message(const Caller& caller, const msghdr* message, std::size_t size_bytes) const noexcept;

 private:
  std::uint32_t weight_calls_;
  std::uint64_t before_ = 0, faults_ = 0;
};

// For a call that fills all of its range whatever happens.
inline std::uint32_t populating_weight() noexcept {
  return g_kernel_faults.counted.load(std::memory_order_acquire) ? 1 : 0;
}

}  // namespace whyrss::shim
