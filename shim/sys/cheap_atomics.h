// Atomic changes to what only threads of this process write: without a bus lock, of some 20 cycles, while it has one
// thread. One instruction each, so that a signal handler sees it done or not, and in its place among the other
// accesses. With threads the order is at least std::memory_order_acq_rel.
#pragma once

#include <atomic>
#include <type_traits>

#include "shim/sys/single_threaded.h"

namespace whyrss::shim {

template <class T>
[[gnu::always_inline]] inline void add_to(std::atomic<T>& counter, std::type_identity_t<T> value) noexcept {
  if (is_single_threaded())
    __asm__ volatile("add %1, %0" : "+m"(counter) : "r"(value) : "cc", "memory");
  else
    counter.fetch_add(value, std::memory_order_acq_rel);
}

template <class T>
[[gnu::always_inline]] inline void set_bits(std::atomic<T>& word, std::type_identity_t<T> bits) noexcept {
  if (is_single_threaded())
    __asm__ volatile("or %1, %0" : "+m"(word) : "r"(bits) : "cc", "memory");
  else
    word.fetch_or(bits);
}

template <class T>
[[gnu::always_inline]] inline void keep_bits(std::atomic<T>& word, std::type_identity_t<T> bits) noexcept {
  if (is_single_threaded())
    __asm__ volatile("and %1, %0" : "+m"(word) : "r"(bits) : "cc", "memory");
  else
    word.fetch_and(bits);
}

// As compare_exchange_strong.
template <class T>
[[gnu::always_inline]] inline bool replace(std::atomic<T>& value, T& expected,
                                           std::type_identity_t<T> wanted) noexcept {
  if (!is_single_threaded()) return value.compare_exchange_strong(expected, wanted);
  bool replaced = false;
  __asm__ volatile("cmpxchg %3, %1" : "=@ccz"(replaced), "+m"(value), "+a"(expected) : "r"(wanted) : "memory");
  return replaced;
}

}  // namespace whyrss::shim
