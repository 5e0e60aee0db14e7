// operator new and delete, all 20: jemalloc, tcmalloc and mimalloc do not call malloc from theirs, and programs bind to
// them directly. Forwarded to the next definition. A C program has none until it loads a C++ plugin: then they are
// looked up again.
// Where the next definition is not of the library that serves malloc (libstdc++, a program's own pools) what it takes
// from malloc is counted there, and what it returns need not be a block of malloc.
#include <stdlib.h>

#include <atomic>

#include "shim/events/caller.h"
#include "shim/hooks/entry_allocate.h"
#include "shim/sys/real.h"

namespace whyrss::shim {
namespace {

enum class Owner : std::uint8_t { unknown, allocator, other };

// Of the next definition.
template <auto field>
constinit std::atomic<Owner> owner{Owner::unknown};

// nullptr: there is none yet.
template <auto field>
auto next_definition() noexcept {
  resolve_real();
  if (real.*field == nullptr) resolve_cxx_again();
  const auto next = real.*field;
  if (next != nullptr && owner<field>.load(std::memory_order_relaxed) == Owner::unknown) {
    const bool own = is_of_one_library(reinterpret_cast<const void*>(next), reinterpret_cast<const void*>(real.malloc));
    owner<field>.store(own ? Owner::allocator : Owner::other, std::memory_order_relaxed);
  }
  return next;
}

// Usable bytes exceed what was asked for by at most this, as a rule. Where by more, the stack of a sampled block
// begins in operator new.
constexpr std::size_t kUsualPadding = 64;

// Throws what the real one throws: nothing here needs a cleanup.
template <auto field, class... Rest>
[[gnu::noinline]] void* allocate_slow(std::size_t size, Rest... rest) {
  const auto next = next_definition<field>();
  const HeapCall call(thread_state(), caller_here());
  if (next == nullptr) return ::malloc(size);
  if (owner<field>.load(std::memory_order_relaxed) != Owner::allocator) return next(size, rest...);
  return allocate_counted(size, [=] { return next(size, rest...); });
}

template <auto field, class... Rest>
[[gnu::noinline]] void* allocate_own(std::size_t size, Rest... rest) {
  return allocate_counted(size, [=] { return (real.*field)(size, rest...); });
}

template <auto field, class... Rest>
[[gnu::always_inline]] inline void* allocate_new(std::size_t size, Rest... rest) {
  const Owner of = owner<field>.load(std::memory_order_relaxed);
  const ThreadState& thread = thread_state();
  if (size + kUsualPadding >= thread.left + thread.request_left || of == Owner::unknown) [[unlikely]]
    return allocate_slow<field>(size, rest...);
  if (of == Owner::other || passes_by_request(size)) return (real.*field)(size, rest...);
  return allocate_own<field>(size, rest...);
}

template <auto field, class... Rest>
[[gnu::noinline]] void release_slow(void* block, Rest... rest) noexcept {
  const auto next = next_definition<field>();
  if (next == nullptr) return ::free(block);
  if (owner<field>.load(std::memory_order_relaxed) != Owner::allocator) return next(block, rest...);
  begin_release(block);
  release_once(block, [=] { next(block, rest...); });
}

template <auto field, class... Rest>
[[gnu::noinline]] void release_own(void* block, Rest... rest) noexcept {
  begin_release(block);
  release_once(block, [=] { (real.*field)(block, rest...); });
}

template <auto field, class... Rest>
[[gnu::always_inline]] inline void release_deleted(void* block, Rest... rest) noexcept {
  const Owner of = owner<field>.load(std::memory_order_relaxed);
  if (of == Owner::other) return (real.*field)(block, rest...);
  return of == Owner::allocator ? release_own<field>(block, rest...) : release_slow<field>(block, rest...);
}

}  // namespace
}  // namespace whyrss::shim

using namespace whyrss::shim;  // NOLINT(google-build-using-namespace): entries are global C functions

WHYRSS_ENTRY void* _Znwm(std::size_t size) { return allocate_new<&Real::_Znwm>(size); }
WHYRSS_ENTRY void* _Znam(std::size_t size) { return allocate_new<&Real::_Znam>(size); }
WHYRSS_ENTRY void* _ZnwmRKSt9nothrow_t(std::size_t size, Nothrow tag) noexcept {
  return allocate_new<&Real::_ZnwmRKSt9nothrow_t>(size, tag);
}
WHYRSS_ENTRY void* _ZnamRKSt9nothrow_t(std::size_t size, Nothrow tag) noexcept {
  return allocate_new<&Real::_ZnamRKSt9nothrow_t>(size, tag);
}
WHYRSS_ENTRY void* _ZnwmSt11align_val_t(std::size_t size, std::size_t alignment) {
  return allocate_new<&Real::_ZnwmSt11align_val_t>(size, alignment);
}
WHYRSS_ENTRY void* _ZnamSt11align_val_t(std::size_t size, std::size_t alignment) {
  return allocate_new<&Real::_ZnamSt11align_val_t>(size, alignment);
}
WHYRSS_ENTRY void* _ZnwmSt11align_val_tRKSt9nothrow_t(std::size_t size, std::size_t alignment, Nothrow tag) noexcept {
  return allocate_new<&Real::_ZnwmSt11align_val_tRKSt9nothrow_t>(size, alignment, tag);
}
WHYRSS_ENTRY void* _ZnamSt11align_val_tRKSt9nothrow_t(std::size_t size, std::size_t alignment, Nothrow tag) noexcept {
  return allocate_new<&Real::_ZnamSt11align_val_tRKSt9nothrow_t>(size, alignment, tag);
}

WHYRSS_ENTRY void _ZdlPv(void* block) noexcept { release_deleted<&Real::_ZdlPv>(block); }
WHYRSS_ENTRY void _ZdaPv(void* block) noexcept { release_deleted<&Real::_ZdaPv>(block); }
WHYRSS_ENTRY void _ZdlPvRKSt9nothrow_t(void* block, Nothrow tag) noexcept {
  release_deleted<&Real::_ZdlPvRKSt9nothrow_t>(block, tag);
}
WHYRSS_ENTRY void _ZdaPvRKSt9nothrow_t(void* block, Nothrow tag) noexcept {
  release_deleted<&Real::_ZdaPvRKSt9nothrow_t>(block, tag);
}
WHYRSS_ENTRY void _ZdlPvm(void* block, std::size_t size) noexcept { release_deleted<&Real::_ZdlPvm>(block, size); }
WHYRSS_ENTRY void _ZdaPvm(void* block, std::size_t size) noexcept { release_deleted<&Real::_ZdaPvm>(block, size); }
WHYRSS_ENTRY void _ZdlPvSt11align_val_t(void* block, std::size_t alignment) noexcept {
  release_deleted<&Real::_ZdlPvSt11align_val_t>(block, alignment);
}
WHYRSS_ENTRY void _ZdaPvSt11align_val_t(void* block, std::size_t alignment) noexcept {
  release_deleted<&Real::_ZdaPvSt11align_val_t>(block, alignment);
}
WHYRSS_ENTRY void _ZdlPvSt11align_val_tRKSt9nothrow_t(void* block, std::size_t alignment, Nothrow tag) noexcept {
  release_deleted<&Real::_ZdlPvSt11align_val_tRKSt9nothrow_t>(block, alignment, tag);
}
WHYRSS_ENTRY void _ZdaPvSt11align_val_tRKSt9nothrow_t(void* block, std::size_t alignment, Nothrow tag) noexcept {
  release_deleted<&Real::_ZdaPvSt11align_val_tRKSt9nothrow_t>(block, alignment, tag);
}
WHYRSS_ENTRY void _ZdlPvmSt11align_val_t(void* block, std::size_t size, std::size_t alignment) noexcept {
  release_deleted<&Real::_ZdlPvmSt11align_val_t>(block, size, alignment);
}
WHYRSS_ENTRY void _ZdaPvmSt11align_val_t(void* block, std::size_t size, std::size_t alignment) noexcept {
  release_deleted<&Real::_ZdaPvmSt11align_val_t>(block, size, alignment);
}
