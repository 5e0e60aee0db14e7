#include "shim/faults/kernel_faults.h"

#include <sys/resource.h>
#include <sys/syscall.h>

#include <algorithm>
#include <bit>

#include "shim/events/caller.h"
#include "shim/events/emit.h"
#include "shim/events/session_state.h"
#include "shim/events/thread_state.h"
#include "shim/heap/observation.h"
#include "shim/heap/sampling.h"
#include "shim/sys/raw_io.h"
#include "shim/sys/readable_page.h"
#include "shim/trace/clock.h"

namespace whyrss::shim {
namespace {

// auto: as many as tell 64 KiB apart in short programs, then 512 KiB.
constexpr std::uint32_t kCloseMeasurements = 2000;
constexpr std::uint32_t kCloseLog2 = 16, kWideLog2 = 19;

std::uint64_t thread_faults() noexcept {
  rusage usage{};
  own_syscall(SYS_getrusage, RUSAGE_THREAD, as_long(&usage));
  return static_cast<std::uint64_t>(usage.ru_minflt);
}

std::uint64_t pages_of(const void* address, std::size_t size_bytes) noexcept {
  const auto start = reinterpret_cast<std::uint64_t>(address);
  return (page_of(start + size_bytes - 1) - page_of(start)) / kPageBytes + 1;
}

template <class Value>
bool read_carefully(const Value* from, Value& value) noexcept {
  const auto start = reinterpret_cast<std::uint64_t>(from);
  if (start % alignof(Value) != 0 || !is_page_readable(page_of(start)) ||
      !is_page_readable(page_of(start + sizeof(Value) - 1)))
    return false;
  value = *from;
  return true;
}

// Of an alternate signal stack of the program: a capture needs about half of this.
constexpr std::uintptr_t kCaptureRoomBytes = 8 * 1024;

// On an alternate signal stack, if this thread is on one.
bool has_room_for_stack() noexcept {
  stack_t now{};
  if (is_raw_error(own_syscall(SYS_sigaltstack, 0, as_long(&now)))) return !trace::is_kernel_closed();
  if ((now.ss_flags & SS_ONSTACK) == 0) return true;
  return reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)) - reinterpret_cast<std::uintptr_t>(now.ss_sp) >=
         kCaptureRoomBytes;
}

// The kernel made `faults` pages of the range resident within a call, and in `weight_calls` calls like it.
void log_kernel_faults(const Caller& caller, const void* address, std::size_t size_bytes, std::uint32_t faults,
                       std::uint32_t weight_calls) noexcept {
  Observation event;
  if (!event) return;
  // read() may be called in a handler, whose stack may have room for its frame and little more.
  const std::uint32_t stack_id = has_room_for_stack() ? event.stack(caller) : trace::kNoStack;
  emit(event.thread(), trace::RecordKind::kernel_faults,
       trace::KernelFaultsRecord{.header = {},
                                 .address = reinterpret_cast<std::uintptr_t>(address),
                                 .size_bytes = size_bytes,
                                 .faults = faults,
                                 .weight_calls = weight_calls,
                                 .stack_id = stack_id,
                                 .tid = event.thread().writer.tid});
}

}  // namespace

constinit KernelFaultSettings g_kernel_faults;

void start_kernel_faults(std::uint32_t period_faults) noexcept {
  KernelFaultSettings& settings = g_kernel_faults;
  const bool automatic = period_faults == 0;
  // Each fault, then also each read.
  const auto given_log2 = period_faults == 1 ? std::countr_zero(kSmallestMeasuredRead)
                                             : std::bit_width(std::uint64_t{period_faults} * 8192 - 1);
  settings.wide_log2.store(automatic ? kWideLog2 : static_cast<std::uint32_t>(given_log2));
  settings.close_measurements.store(automatic ? kCloseMeasurements : 0);
  settings.counted.store(true, std::memory_order_release);
}

std::uint32_t draw_read_weight(std::size_t size_bytes) noexcept {
  KernelFaultSettings& settings = g_kernel_faults;
  const std::uint32_t close = settings.close_measurements.load(std::memory_order_relaxed);
  const std::uint32_t distance_log2 = close != 0 ? kCloseLog2 : settings.wide_log2.load(std::memory_order_relaxed);
  const auto size_log2 = static_cast<std::uint32_t>(std::bit_width(size_bytes) - 1);
  const std::uint32_t halvings = distance_log2 > size_log2 ? distance_log2 - size_log2 : 0;
  ThreadState& thread = thread_state();
  if (thread.read_random == 0) thread.read_random = trace::now_ns() ^ reinterpret_cast<std::uint64_t>(&thread) << 20;
  const std::uint32_t weight = std::uint32_t{1} << std::min(halvings, 31U);
  if ((next_random(thread.read_random) & (weight - 1)) != 0) return 0;
  if (close != 0) settings.close_measurements.store(close - 1, std::memory_order_relaxed);
  return weight;
}

// Faults that a signal handler has reported meanwhile, for a read of its own, are not reported twice.
KernelFaults::KernelFaults(std::uint32_t weight_calls) noexcept : weight_calls_(weight_calls) {
  if (weight_calls_ != 0) before_ = thread_faults() - thread_state().reported_faults;
}

void KernelFaults::end() noexcept {
  if (weight_calls_ == 0) return;
  ThreadState& thread = thread_state();
  const auto difference = static_cast<std::int64_t>(thread_faults() - thread.reported_faults - before_);
  // A vfork child fills its parent's memory, and its counts are its own.
  if (difference <= 0 || is_vfork_child()) return;
  faults_ = static_cast<std::uint64_t>(difference);
  thread.reported_faults += faults_;
}

void KernelFaults::log(const Caller& caller, const void* address, std::size_t size_bytes) const noexcept {
  if (faults_ == 0 || size_bytes == 0) return;
  const std::uint64_t faults = std::min(faults_, pages_of(address, size_bytes));
  log_kernel_faults(caller, address, size_bytes, static_cast<std::uint32_t>(faults), weight_calls_);
}

// Which buffer the faults were for is not known: each is taken to have its share of them.
void KernelFaults::report_vector(const Caller& caller, const iovec* buffers, std::size_t count,
                                 std::size_t size_bytes) const noexcept {
  std::uint64_t faults = faults_;
  std::uint64_t left_bytes = size_bytes;
  iovec buffer{};
  for (std::size_t i = 0; i < count && faults > 0 && left_bytes > 0 && read_carefully(buffers + i, buffer); ++i) {
    const std::uint64_t filled = std::min<std::uint64_t>(buffer.iov_len, left_bytes);
    if (filled == 0) continue;
    const double part = static_cast<double>(filled) / static_cast<double>(left_bytes);
    const auto share = static_cast<std::uint64_t>(static_cast<double>(faults) * part);
    const std::uint64_t reported = std::min(share, pages_of(buffer.iov_base, filled));
    if (reported != 0)
      log_kernel_faults(caller, buffer.iov_base, filled, static_cast<std::uint32_t>(reported), weight_calls_);
    faults -= share;
    left_bytes -= filled;
  }
}

void KernelFaults::report_message(const Caller& caller, const msghdr* message, std::size_t size_bytes) const noexcept {
  msghdr header{};
  if (faults_ != 0 && size_bytes != 0 && read_carefully(message, header))
    report_vector(caller, header.msg_iov, header.msg_iovlen, size_bytes);
}

}  // namespace whyrss::shim
