// System calls that the library makes on its own account, beside those that the program asked for. They end for good
// when the program is about to forbid itself some (seccomp): a filter may kill for any of them. All of them pass the
// door here, so that none can be forgotten; what is refused returns -EPERM, as if the kernel had said so.
//
//   open --close_kernel()--> closed (new visits are refused, those under way are waited for) --open_kernel()--> open
//
// A visit may hold several calls which belong together (open, read, close). The reader's process never closes it.
// Threads: any, async-signal-safe, no errno.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>

namespace whyrss::trace {

// x86-64 Linux system call; returns -errno on failure and leaves errno alone.
inline long raw_syscall(long number, long a1 = 0, long a2 = 0, long a3 = 0, long a4 = 0, long a5 = 0,
                        long a6 = 0) noexcept {
  long result = number;
  register long r10 __asm__("r10") = a4;
  register long r8 __asm__("r8") = a5;
  register long r9 __asm__("r9") = a6;
  __asm__ volatile("syscall"
                   : "+a"(result)
                   : "D"(a1), "S"(a2), "d"(a3), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
}

inline bool is_raw_error(long result) noexcept { return static_cast<unsigned long>(result) > -4096UL; }

template <class Type>
long as_long(Type* pointer) noexcept {
  return reinterpret_cast<long>(pointer);
}

struct KernelDoor {
  std::atomic<bool> closed;
  std::atomic<std::uint32_t> visits;  // under way in all threads
};
extern constinit KernelDoor g_kernel_door;
// Of a vfork child that restricts itself: its memory, and this, are its parent's.
extern constinit thread_local bool t_kernel_closed;

inline bool is_kernel_closed() noexcept {
  return g_kernel_door.closed.load(std::memory_order_seq_cst) || t_kernel_closed;
}

class KernelVisit {
 public:
  KernelVisit() noexcept {
    g_kernel_door.visits.fetch_add(1, std::memory_order_seq_cst);
    allowed_ = !is_kernel_closed();
    if (!allowed_) leave();
  }
  KernelVisit(const KernelVisit&) = delete;
  KernelVisit& operator=(const KernelVisit&) = delete;
  ~KernelVisit() {
    if (allowed_) leave();
  }
  explicit operator bool() const noexcept { return allowed_; }

 private:
  static void leave() noexcept { g_kernel_door.visits.fetch_sub(1, std::memory_order_seq_cst); }
  bool allowed_;
};

// One call on our own account.
inline long own_syscall(long number, long a1 = 0, long a2 = 0, long a3 = 0, long a4 = 0, long a5 = 0,
                        long a6 = 0) noexcept {
  const KernelVisit visit;
  return visit ? raw_syscall(number, a1, a2, a3, a4, a5, a6) : -EPERM;
}

// From now on nothing of ours enters the kernel, in no thread. Waits a moment for visits under way.
void close_kernel() noexcept;
void open_kernel() noexcept;

// In a fork child: visits of threads that it does not have are over.
void forget_visits() noexcept;

}  // namespace whyrss::trace
