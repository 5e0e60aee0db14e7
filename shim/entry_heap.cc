// The malloc family. Fast path: one TLS compare, count, tail call. Slow paths are reached by sibling
// call, so their caller is the program's.
#include <malloc.h>
#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "shim/entry_allocate.h"
#include "shim/live_blocks.h"
#include "shim/observe.h"
#include "shim/real.h"

namespace whyrss::shim {
namespace {

[[gnu::noinline]] void* malloc_slow(std::size_t size) noexcept {
  if (!resolve_real()) return bootstrap_allocate(size, 16);
  return allocate_observed(caller_here(), size, [=] { return real.malloc(size); });
}

[[gnu::noinline]] void* calloc_slow(std::size_t count, std::size_t size) noexcept {
  std::size_t total = 0;
  if (__builtin_mul_overflow(count, size, &total)) total = SIZE_MAX;
  if (!resolve_real()) return bootstrap_allocate(total, 16);  // the arena is zero and used once
  return allocate_observed(caller_here(), total, [=] { return real.calloc(count, size); });
}

// A block of the bootstrap arena moves into the real heap.
void* move_from_bootstrap(void* block, std::size_t size) noexcept {
  void* moved = resolve_real() ? real.malloc(size) : bootstrap_allocate(size, 16);
  if (moved != nullptr) std::memcpy(moved, block, std::min(size, bootstrap_bytes_from(block)));
  return moved;
}

// The shape of every realloc: release before, allocate after; release undone when it failed.
template <class Resize>
[[gnu::always_inline]] inline void* resize_observed(const Caller& caller, void* block, std::size_t size,
                                                    Resize resize) noexcept {
  if (block != nullptr && is_bootstrap(block)) return move_from_bootstrap(block, size);
  const HeapCall call(thread_state(), caller);
  if (call.nested()) return resize();
  const bool released = block != nullptr && observe_release(block);
  void* moved = resize();
  if (moved != nullptr)
    observe_allocate(caller, moved, size);
  else if (released && size != 0)  // realloc(block, 0) frees
    observe_release_undone(block);
  return moved;
}

[[gnu::noinline]] void* realloc_slow(void* block, std::size_t size) noexcept {
  if (!resolve_real() && block == nullptr) return bootstrap_allocate(size, 16);
  return resize_observed(caller_here(), block, size, [=] { return real.realloc(block, size); });
}

[[gnu::noinline]] void* reallocarray_slow(void* block, std::size_t count, std::size_t size) noexcept {
  std::size_t total = 0;
  const bool fits = !__builtin_mul_overflow(count, size, &total);
  if (!fits) {  // as glibc does; the block stays
    errno = ENOMEM;
    return nullptr;
  }
  if (!resolve_real() && block == nullptr) return bootstrap_allocate(total, 16);
  return resize_observed(caller_here(), block, total, [=] {
    return real.reallocarray != nullptr ? real.reallocarray(block, count, size) : real.realloc(block, total);
  });
}

[[gnu::noinline]] int posix_memalign_slow(void** block, std::size_t alignment, std::size_t size) noexcept {
  if (!resolve_real()) return (*block = bootstrap_allocate(size, alignment)) == nullptr ? ENOMEM : 0;
  const Caller caller = caller_here();
  const HeapCall call(thread_state(), caller);
  const int error = real.posix_memalign(block, alignment, size);
  if (error == 0 && !call.nested()) observe_allocate(caller, *block, size);
  return error;
}

[[gnu::noinline]] void* aligned_alloc_slow(std::size_t alignment, std::size_t size) noexcept {
  if (!resolve_real()) return bootstrap_allocate(size, alignment);
  return allocate_observed(caller_here(), size, [=] { return real.aligned_alloc(alignment, size); });
}

[[gnu::noinline]] void* memalign_slow(std::size_t alignment, std::size_t size) noexcept {
  if (!resolve_real()) return bootstrap_allocate(size, alignment);
  return allocate_observed(caller_here(), size, [=] { return real.memalign(alignment, size); });
}

[[gnu::noinline]] void* valloc_slow(std::size_t size) noexcept {
  if (!resolve_real()) return bootstrap_allocate(size, 4096);
  return allocate_observed(caller_here(), size, [=] { return real.valloc(size); });
}

[[gnu::noinline]] void* pvalloc_slow(std::size_t size) noexcept {
  if (!resolve_real()) return bootstrap_allocate(size, 4096);
  return allocate_observed(caller_here(), size, [=] { return real.pvalloc(size); });
}

[[gnu::noinline]] void free_slow(void* block) noexcept {
  if (is_bootstrap(block)) return;
  observe_release(block);
  real.free(block);
}

[[gnu::noinline]] void free_sized_slow(void* block, std::size_t size) noexcept {
  if (is_bootstrap(block)) return;
  observe_release(block);
  resolve_real() && real.free_sized != nullptr ? real.free_sized(block, size) : real.free(block);
}

[[gnu::noinline]] void free_aligned_sized_slow(void* block, std::size_t alignment, std::size_t size) noexcept {
  if (is_bootstrap(block)) return;
  observe_release(block);
  resolve_real() && real.free_aligned_sized != nullptr ? real.free_aligned_sized(block, alignment, size)
                                                       : real.free(block);
}

}  // namespace
}  // namespace whyrss::shim

using namespace whyrss::shim;  // NOLINT(google-build-using-namespace): entries are global C functions

WHYRSS_ENTRY void* malloc(std::size_t size) noexcept {
  if (count_if_small(size)) [[likely]]
    return real.malloc(size);
  return malloc_slow(size);
}

WHYRSS_ENTRY void* calloc(std::size_t count, std::size_t size) noexcept {
  std::size_t total = 0;
  if (!__builtin_mul_overflow(count, size, &total) && count_if_small(total)) [[likely]]
    return real.calloc(count, size);
  return calloc_slow(count, size);
}

WHYRSS_ENTRY void* realloc(void* block, std::size_t size) noexcept {
  if (!live_blocks().may_contain(block) && count_if_small(size)) [[likely]] {
    thread_state().small_releases += block != nullptr ? 1 : 0;
    return real.realloc(block, size);
  }
  return realloc_slow(block, size);
}

WHYRSS_ENTRY void* reallocarray(void* block, std::size_t count, std::size_t size) noexcept {
  return reallocarray_slow(block, count, size);
}

WHYRSS_ENTRY void free(void* block) noexcept {
  if (!live_blocks().may_contain(block)) [[likely]] {
    thread_state().small_releases += block != nullptr ? 1 : 0;
    return real.free(block);
  }
  free_slow(block);
}

WHYRSS_ENTRY int posix_memalign(void** block, std::size_t alignment, std::size_t size) noexcept {
  if (count_if_small(size)) [[likely]]
    return real.posix_memalign(block, alignment, size);
  return posix_memalign_slow(block, alignment, size);
}

WHYRSS_ENTRY void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  if (count_if_small(size)) [[likely]]
    return real.aligned_alloc(alignment, size);
  return aligned_alloc_slow(alignment, size);
}

WHYRSS_ENTRY void* memalign(std::size_t alignment, std::size_t size) noexcept {
  if (count_if_small(size)) [[likely]]
    return real.memalign(alignment, size);
  return memalign_slow(alignment, size);
}

WHYRSS_ENTRY void* valloc(std::size_t size) noexcept {
  if (count_if_small(size)) [[likely]]
    return real.valloc(size);
  return valloc_slow(size);
}

WHYRSS_ENTRY void* pvalloc(std::size_t size) noexcept {
  if (count_if_small(size)) [[likely]]
    return real.pvalloc(size);
  return pvalloc_slow(size);
}

WHYRSS_ENTRY void free_sized(void* block, std::size_t size) noexcept { free_sized_slow(block, size); }

WHYRSS_ENTRY void free_aligned_sized(void* block, std::size_t alignment, std::size_t size) noexcept {
  free_aligned_sized_slow(block, alignment, size);
}
