// The malloc family. Fast path: without a table of live bytes one TLS compare, count, tail call; with it the real
// call, the block's size, a compare and one add. Slow paths are reached by sibling call or take the caller from the
// entry's own frame.
#include <malloc.h>
#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "shim/events/caller.h"
#include "shim/hooks/entry_allocate.h"
#include "shim/observe/observe_heap.h"
#include "shim/sys/real.h"

namespace whyrss::shim {
namespace {

[[gnu::noinline]] void* malloc_counted(std::size_t size) noexcept {
  return allocate_counted(size, [=] { return real.malloc(size); });
}

[[gnu::noinline]] void* calloc_counted(std::size_t count, std::size_t size) noexcept {
  resolve_real();
  std::size_t total = 0;
  if (__builtin_mul_overflow(count, size, &total)) total = SIZE_MAX;
  return allocate_counted(total, [=] { return real.calloc(count, size); });
}

// A block that was logged, or every block: release before, allocate after; release undone when it failed.
template <class Resize>
[[gnu::always_inline]] inline void* resize_observed(void* block, std::size_t size, Resize resize) noexcept {
  ThreadState& thread = thread_state();
  const bool inner = block != nullptr && block == thread.releasing;  // the entry around it observes
  const bool observed = block != nullptr && !inner;
  const Released released = observed ? observe_release(block) : Released::unknown;
  thread.last_block = nullptr;
  void* moved = inner ? resize() : release_once(block, resize);
  if (moved == nullptr) {
    if (observed && size != 0) observe_release_undone(block, released);  // realloc(block, 0) frees
    return nullptr;
  }
  if (!inner && moved != thread.last_block) observe_allocate(caller_here(), moved, size);
  return moved;
}

// Any other block: counted as released before the call, since another thread may have its place before the call
// returns.
template <class Resize>
[[gnu::always_inline]] inline void* resize_counted(void* block, std::size_t size, Resize resize) noexcept {
  ThreadState& thread = thread_state();
  if (block == nullptr) return allocate_counted(size, resize);
  if (block == thread.releasing) return resize();
  const std::size_t usable = usable_bytes(block);
  const LivenessDirectory directory = heap().directory.load(std::memory_order_acquire);
  const bool counted = directory != nullptr && is_counted_unfollowed(usable);
  if (counted) change_live(thread, directory, block, usable, LiveChange::release);
  thread.last_block = nullptr;
  void* moved = release_once(block, resize);
  if (moved == nullptr && size != 0) {
    if (counted) change_live(thread, directory, block, usable, LiveChange::undo_release);
    return nullptr;
  }
  ++thread.small_releases;
  if (counted) thread.small_released_bytes += usable;
  if (moved == nullptr || moved == thread.last_block || is_allocation_counted(thread, moved)) return moved;
  const Caller caller = caller_here();
  return count_allocated(moved, size, caller.ip, caller.sp, caller.bp);
}

[[gnu::noinline]] void* realloc_slow(void* block, std::size_t size) noexcept {
  resolve_real();
  // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): libc has it
  return resize_observed(block, size, [=] { return real.realloc(block, size); });
}

[[gnu::noinline]] void* realloc_counted(void* block, std::size_t size) noexcept {
  if (is_release_slow(block) || real.realloc == nullptr) return realloc_slow(block, size);
  return resize_counted(block, size, [=] { return real.realloc(block, size); });
}

// glibc's calls realloc, others' do not.
[[gnu::noinline]] void* reallocarray_counted(void* block, std::size_t count, std::size_t size) noexcept {
  std::size_t total = 0;
  if (__builtin_mul_overflow(count, size, &total)) {  // as glibc does; the block stays
    errno = ENOMEM;
    return nullptr;
  }
  resolve_real();
  if (real.reallocarray == nullptr) return realloc_slow(block, total);
  const HeapCall call(thread_state(), caller_here());
  const auto resize = [=] { return real.reallocarray(block, count, size); };
  return is_release_slow(block) ? resize_observed(block, total, resize) : resize_counted(block, total, resize);
}

[[gnu::noinline]] int posix_memalign_counted(void** block, std::size_t alignment, std::size_t size) noexcept {
  resolve_real();
  int error = 0;
  allocate_counted(size, [&]() -> void* {
    error = real.posix_memalign(block, alignment, size);
    return error == 0 ? *block : nullptr;
  });
  return error;
}

[[gnu::noinline]] void* aligned_alloc_counted(std::size_t alignment, std::size_t size) noexcept {
  resolve_real();
  return allocate_counted(size, [=] { return real.aligned_alloc(alignment, size); });
}

[[gnu::noinline]] void* memalign_counted(std::size_t alignment, std::size_t size) noexcept {
  resolve_real();
  return allocate_counted(size, [=] { return real.memalign(alignment, size); });
}

[[gnu::noinline]] void* valloc_counted(std::size_t size) noexcept {
  resolve_real();
  return allocate_counted(size, [=] { return real.valloc(size); });
}

[[gnu::noinline]] void* pvalloc_counted(std::size_t size) noexcept {
  resolve_real();
  return allocate_counted(size, [=] { return real.pvalloc(size); });
}

[[gnu::noinline]] void free_slow(void* block) noexcept {
  begin_slow_release(block);
  real.free(block);
}

[[gnu::noinline]] void free_counted(void* block) noexcept {
  count_released(block);
  real.free(block);
}

}  // namespace

void count_released(const void* block) noexcept {
  ThreadState& thread = thread_state();
  ++thread.small_releases;
  const LivenessDirectory directory = heap().directory.load(std::memory_order_acquire);
  if (directory == nullptr) return;
  if (const std::size_t usable = usable_bytes(block); is_counted_unfollowed(usable)) {
    thread.small_released_bytes += usable;
    change_live(thread, directory, block, usable, LiveChange::release);
    if (usable < trace::kLargeBlockBytes && lacks_own_pages(thread, block)) [[unlikely]]
      observe_distant_release(block);
  }
}

void begin_slow_release(const void* block) noexcept {
  ThreadState& thread = thread_state();
  if (block == nullptr || block == thread.releasing || release_on_fast_path(thread, block)) return;
  observe_release(block);
}

}  // namespace whyrss::shim

using namespace whyrss::shim;  // NOLINT(google-build-using-namespace): entries are global C functions

WHYRSS_ENTRY void* malloc(std::size_t size) noexcept {
  if (passes_by_request(size)) return real.malloc(size);
  return malloc_counted(size);
}

WHYRSS_ENTRY void* calloc(std::size_t count, std::size_t size) noexcept {
  std::size_t total = 0;
  if (!__builtin_mul_overflow(count, size, &total) && passes_by_request(total)) return real.calloc(count, size);
  return calloc_counted(count, size);
}

WHYRSS_ENTRY void* realloc(void* block, std::size_t size) noexcept {
  if (!is_release_slow(block) && passes_by_request(size)) {
    thread_state().small_releases += block != nullptr ? 1 : 0;
    return real.realloc(block, size);
  }
  return realloc_counted(block, size);
}

WHYRSS_ENTRY void* reallocarray(void* block, std::size_t count, std::size_t size) noexcept {
  return reallocarray_counted(block, count, size);
}

WHYRSS_ENTRY void free(void* block) noexcept {
  if (is_release_slow(block)) [[unlikely]]
    return free_slow(block);
  if (!is_release_counted(block)) [[unlikely]]
    return free_counted(block);
  return real.free(block);
}

WHYRSS_ENTRY int posix_memalign(void** block, std::size_t alignment, std::size_t size) noexcept {
  if (passes_by_request(size)) return real.posix_memalign(block, alignment, size);
  return posix_memalign_counted(block, alignment, size);
}

WHYRSS_ENTRY void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  if (passes_by_request(size)) return real.aligned_alloc(alignment, size);
  return aligned_alloc_counted(alignment, size);
}

WHYRSS_ENTRY void* memalign(std::size_t alignment, std::size_t size) noexcept {
  if (passes_by_request(size)) return real.memalign(alignment, size);
  return memalign_counted(alignment, size);
}

WHYRSS_ENTRY void* valloc(std::size_t size) noexcept {
  if (passes_by_request(size)) return real.valloc(size);
  return valloc_counted(size);
}

WHYRSS_ENTRY void* pvalloc(std::size_t size) noexcept {
  if (passes_by_request(size)) return real.pvalloc(size);
  return pvalloc_counted(size);
}

// Where there is none: the program's free, which may define malloc itself.
WHYRSS_ENTRY void free_sized(void* block, std::size_t size) noexcept {
  begin_release(block);
  resolve_real();
  release_once(block, [=] { real.free_sized != nullptr ? real.free_sized(block, size) : ::free(block); });
}

WHYRSS_ENTRY void free_aligned_sized(void* block, std::size_t alignment, std::size_t size) noexcept {
  begin_release(block);
  resolve_real();
  release_once(block, [=] {
    real.free_aligned_sized != nullptr ? real.free_aligned_sized(block, alignment, size) : ::free(block);
  });
}

// The same entries by names that no other library can define: entry_lookup.cc hands out their addresses.
#define WHYRSS_OWN(name) \
  __asm__(".globl whyrss_own_" #name "\n.hidden whyrss_own_" #name "\n.set whyrss_own_" #name ", " #name);
WHYRSS_OWN(malloc)
WHYRSS_OWN(calloc)
WHYRSS_OWN(realloc)
WHYRSS_OWN(reallocarray)
WHYRSS_OWN(free)
WHYRSS_OWN(posix_memalign)
WHYRSS_OWN(aligned_alloc)
WHYRSS_OWN(memalign)
WHYRSS_OWN(valloc)
WHYRSS_OWN(pvalloc)
WHYRSS_OWN(free_sized)
WHYRSS_OWN(free_aligned_sized)
