#include "shim/faults/touch_stack.h"

#include <cpuid.h>
#include <sys/auxv.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>

#include "shim/heap/live_blocks.h"
#include "shim/stacks/stack_bounds.h"
#include "shim/sys/raw_io.h"

namespace whyrss::shim {
namespace {

// Above the kernel's signal frame: what the first functions of the handler take.
constexpr std::uint64_t kHandlerBytes = 1024;

// Of the registers of these features (XCR0's bits), as XSAVE writes them: CPUID leaf 0xd.
std::uint64_t saved_bytes(std::uint64_t features) noexcept {
  constexpr std::uint64_t kLegacyBytes = 512 + 64;
  constexpr unsigned kLeaf = 0xd, kFirstExtended = 2, kEnd = 63;
  std::uint64_t bytes = kLegacyBytes;
  for (unsigned feature = kFirstExtended; feature < kEnd; ++feature) {
    if ((features >> feature & 1) == 0) continue;
    unsigned size = 0, offset = 0, unused_ecx = 0, unused_edx = 0;
    __cpuid_count(kLeaf, feature, size, offset, unused_ecx, unused_edx);
    bytes = std::max<std::uint64_t>(bytes, std::uint64_t{offset} + size);
  }
  return bytes;
}

// The kernel's frame with the registers of all features.
std::uint64_t whole_frame_bytes() noexcept {
  constexpr unsigned long kMinSignalStack = 51;  // AT_MINSIGSTKSZ, Linux 5.14
  return std::max<std::uint64_t>(getauxval(kMinSignalStack), 2048);
}

// Without those that a program must ask for first: Intel's AMX, 8 KiB (Linux 5.16).
std::uint64_t measure_frame_at_start() noexcept {
  constexpr long kGetPermitted = 0x1022, kGetCpuid = 0x1011;  // ARCH_GET_XCOMP_PERM, ARCH_GET_CPUID
  constexpr std::uint64_t kSurelyWithout = 8192, kLegacyFeatures = 3;
  const std::uint64_t whole = whole_frame_bytes();
  std::uint64_t permitted = 0;
  if (whole < kSurelyWithout || is_raw_error(own_syscall(SYS_arch_prctl, kGetPermitted, as_long(&permitted))) ||
      permitted <= kLegacyFeatures || own_syscall(SYS_arch_prctl, kGetCpuid) != 1)
    return whole;
  std::uint32_t low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  const std::uint64_t enabled = std::uint64_t{high} << 32 | low;
  const std::uint64_t left_out = saved_bytes(enabled) - saved_bytes(enabled & permitted);
  return whole - std::min(whole, left_out);
}

// The same as long as the program has not asked.
std::uint64_t frame_at_start() noexcept {
  static constinit std::atomic<std::uint64_t> known{0};
  if (known.load(std::memory_order_relaxed) == 0) known.store(measure_frame_at_start(), std::memory_order_relaxed);
  return known.load(std::memory_order_relaxed);
}

// While a thread has a stack smaller than the whole frame the kernel refuses those features to the program
// (validate_sigaltstack of arch/x86/kernel/fpu/xstate.c): the small frame is all that may come. A larger one may get
// the whole frame at any time.
bool has_room(std::uint64_t stack_bytes) noexcept {
  const std::uint64_t whole = whole_frame_bytes();
  return stack_bytes >= (stack_bytes < whole ? frame_at_start() : whole) + kHandlerBytes;
}

// Between here and the bottom of the thread's stack: an array of a function, which may return before the next signal.
bool lies_in_a_frame(const void* stack) noexcept {
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  const auto at = reinterpret_cast<std::uintptr_t>(stack);
  return at >= here && at < own_stack_end(here);
}

// Its release takes the slow path, and asks (touch_event.h).
void watch(SignalStack& own, const void* stack, std::size_t size_bytes) noexcept {
  if (own.set != nullptr) live_blocks().unwatch(own.set);
  own.set = stack;
  own.set_bytes = size_bytes;
  if (own.set != nullptr) live_blocks().watch(own.set);
}

bool ask_kernel(stack_t& now) noexcept {
  now = {};
  return !is_raw_error(own_syscall(SYS_sigaltstack, 0, as_long(&now)));
}

}  // namespace

void take_up_signal_stack(SignalStack& own) noexcept {
  stack_t now;
  if (!ask_kernel(now)) return;
  if ((now.ss_flags & SS_DISABLE) == 0) {
    if (!is_own_stack(own, now.ss_sp)) adopt_signal_stack(own, now);
    return;
  }
  watch(own, nullptr, 0);
  own.unfit = false;
  stack_t ours{};
  ours.ss_sp = own.stack;
  ours.ss_size = sizeof(own.stack);
  own.has_own = !is_raw_error(own_syscall(SYS_sigaltstack, as_long(&ours), 0));
  // A page that the kernel has to fault in for its frame costs the lock of all mappings.
  volatile unsigned char* top = own.stack + sizeof(own.stack);
  for (std::uint64_t below = 1; own.has_own && below < frame_at_start() + 4096; below += 4096) *(top - below) = 0;
}

void adopt_signal_stack(SignalStack& own, const stack_t& set) noexcept {
  own.unfit = !has_room(set.ss_size) || lies_in_a_frame(set.ss_sp);
  watch(own, set.ss_sp, set.ss_size);
}

bool leave_signal_stack(SignalStack& own) noexcept {
  stack_t now;
  if (own.has_own) {
    if (!ask_kernel(now)) return false;
    const bool installed = is_own_stack(own, now.ss_sp);
    if (installed && (now.ss_flags & SS_ONSTACK) != 0) return false;  // pthread_exit in a handler
    stack_t none{};
    none.ss_flags = SS_DISABLE;
    if (installed) own_syscall(SYS_sigaltstack, as_long(&none), 0);
  }
  watch(own, nullptr, 0);
  return true;
}

void call_on_own_stack(SignalStack& own, void (*call)(void*), void* argument) noexcept {
  unsigned char* top = own.stack + sizeof(own.stack);
  __asm__ volatile(
      "movq %%rsp, %%rbx\n\t"
      "movq %[top], %%rsp\n\t"
      "callq *%[call]\n\t"
      "movq %%rbx, %%rsp"
      : "+D"(argument), [top] "+r"(top), [call] "+r"(call)
      :
      : "rbx", "rax", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5",
        "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "memory", "cc");
}

}  // namespace whyrss::shim
