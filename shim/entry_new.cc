// operator new and delete, all 20: jemalloc, tcmalloc and mimalloc do not call malloc from theirs, and
// programs bind to them directly. Forwarded to the next definition. A C program has none until it loads
// a C++ plugin: then they are looked up again.
// Where both are seen (glibc: new calls malloc) small blocks are counted once. Whether the next definition
// comes back to us is learned from its first calls, which are counted exactly: the count that the inner
// call made is taken back. From then on: one TLS compare, count or not, tail call, as in entry_heap.cc. A
// definition that does now this, now that never gets there, or is off by its rarer kind of call.
#include <atomic>

#include "shim/entry_allocate.h"
#include "shim/live_blocks.h"
#include "shim/real.h"

namespace whyrss::shim {
namespace {

enum class Counts : std::uint8_t {
  unknown,
  inside,  // the next definition calls an entry of ours, which counts
  here,
};

// What was learned about one definition. Threads may learn at once: a lost step only costs a call more.
class CountRoute {
 public:
  [[nodiscard]] Counts counts() const noexcept { return counts_.load(std::memory_order_relaxed); }
  // `inner_counts`: what the real call added to this thread's count. A signal handler may add its own.
  void learn(std::uint64_t inner_counts) noexcept {
    const Counts seen = inner_counts == 0 ? Counts::here : inner_counts == 1 ? Counts::inside : Counts::unknown;
    const std::uint8_t run = seen == last_.load(std::memory_order_relaxed) && seen != Counts::unknown
                                 ? static_cast<std::uint8_t>(run_.load(std::memory_order_relaxed) + 1)
                                 : std::uint8_t{1};
    last_.store(seen, std::memory_order_relaxed);
    run_.store(run, std::memory_order_relaxed);
    if (run == kSureAfter && counts() == Counts::unknown) counts_.store(seen, std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint8_t kSureAfter = 16;
  std::atomic<Counts> counts_{Counts::unknown}, last_{Counts::unknown};
  std::atomic<std::uint8_t> run_{0};
};

template <auto field>
constinit CountRoute route;

template <auto field>
auto next_definition() noexcept {
  if (real.*field == nullptr && resolve_real() && real.*field == nullptr) resolve_cxx_again();
  return real.*field;
}

// Throws what the real one throws: nothing here needs a cleanup.
template <auto field, class... Rest>
[[gnu::noinline]] void* allocate_slow(std::size_t size, Rest... rest) {
  const Caller caller = caller_here();
  const auto next = next_definition<field>();
  ThreadState& thread = thread_state();
  if (size < thread.large_limit) {
    const std::uint64_t allocations = thread.small_allocations;
    const std::uint64_t bytes = thread.small_allocated_bytes;
    void* block = next != nullptr ? next(size, rest...) : real.malloc(size);
    if (next != nullptr) route<field>.learn(thread.small_allocations - allocations);
    thread.small_allocations = allocations + 1;
    thread.small_allocated_bytes = bytes + size;
    return block;
  }
  const HeapCall call(thread, caller);
  void* block = next != nullptr ? next(size, rest...) : real.malloc(size);
  if (block != nullptr && !call.nested()) observe_allocate(caller, block, size);
  return block;
}

template <auto field, class... Rest>
[[gnu::always_inline]] inline void* allocate_new(std::size_t size, Rest... rest) {
  const Counts counts = route<field>.counts();
  ThreadState& thread = thread_state();
  if (size >= thread.large_limit || counts == Counts::unknown) [[unlikely]]
    return allocate_slow<field>(size, rest...);
  if (counts == Counts::here) {
    ++thread.small_allocations;
    thread.small_allocated_bytes += size;
  }
  return (real.*field)(size, rest...);
}

template <auto field, class... Rest>
[[gnu::noinline]] void release_slow(void* block, Rest... rest) noexcept {
  const auto next = next_definition<field>();
  ThreadState& thread = thread_state();
  const bool plain = !live_blocks().may_contain(block);
  if (!plain) {
    if (is_bootstrap(block)) return;
    observe_release(block);
  }
  const std::uint64_t releases = thread.small_releases;
  next != nullptr ? next(block, rest...) : real.free(block);
  if (next != nullptr && block != nullptr && plain) route<field>.learn(thread.small_releases - releases);
  thread.small_releases = releases + (block != nullptr ? 1 : 0);
}

template <auto field, class... Rest>
[[gnu::always_inline]] inline void release_deleted(void* block, Rest... rest) noexcept {
  const Counts counts = route<field>.counts();
  if (counts == Counts::unknown || live_blocks().may_contain(block)) [[unlikely]]
    return release_slow<field>(block, rest...);
  if (counts == Counts::here) thread_state().small_releases += block != nullptr ? 1 : 0;
  return (real.*field)(block, rest...);
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
