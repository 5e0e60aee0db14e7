#include "shim/real.h"

#include <dlfcn.h>

#include <atomic>
#include <cerrno>

#include "shim/live_blocks.h"
#include "shim/thread_state.h"

// entry_process.cc; entry_syscall.S jumps to it.
extern "C" __attribute__((visibility("hidden"))) long (*whyrss_real_syscall)(long, ...);

namespace whyrss::shim {
namespace {

constinit std::atomic<std::size_t> g_arena_used{0};

enum class Progress : std::uint8_t { unresolved, resolving, resolved };
constinit std::atomic<Progress> g_progress{Progress::unresolved};

void* malloc_unresolved(std::size_t size) noexcept {
  return resolve_real() ? real.malloc(size) : bootstrap_allocate(size, 16);
}

void free_unresolved(void* block) noexcept {
  if (resolve_real()) real.free(block);
}

template <class Function>
void look_up(Function& function, void* where, const char* name) noexcept {
  if (void* found = dlsym(where, name); found != nullptr) function = reinterpret_cast<Function>(found);
}

}  // namespace

// dlsym allocates only error texts (one per missing symbol, some tens of bytes each).
alignas(16) constinit char g_arena[kArenaBytes];

constinit Real real{.malloc = malloc_unresolved, .free = free_unresolved};

// _dlerror_run in glibc's dlfcn/dlerror.c: a lookup that succeeds drops the error of the one before.
void drop_lookup_error() noexcept { (void)dlsym(RTLD_NEXT, "malloc"); }

bool resolve_real() noexcept {
  if (g_progress.load(std::memory_order_acquire) == Progress::resolved) return true;
  Progress expected = Progress::unresolved;
  // Another thread resolves (only possible before main): the arena serves this one meanwhile.
  if (!g_progress.compare_exchange_strong(expected, Progress::resolving)) return expected == Progress::resolved;
  const int saved_errno = errno;
  Real found{};
#define WHYRSS_LOOK_UP(name, result, parameters) look_up(found.name, RTLD_NEXT, #name);
  WHYRSS_REAL_FUNCTIONS(WHYRSS_LOOK_UP)
#undef WHYRSS_LOOK_UP
  drop_lookup_error();
  real = found;
  whyrss_real_syscall = found.syscall;
  errno = saved_errno;
  g_progress.store(Progress::resolved, std::memory_order_release);
  return true;
}

void resolve_cxx_again() noexcept {
  const int saved_errno = errno;
  for (const char* runtime : {"libstdc++.so.6", "libc++.so.1"}) {
    void* library = dlopen(runtime, RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr) continue;
    // The handle stays open: the table must never point into an unloaded library.
    Real found = real;
#define WHYRSS_IS_CXX(name) (#name[0] == '_' && #name[1] == 'Z')
#define WHYRSS_LOOK_UP(name, result, parameters) \
  if (WHYRSS_IS_CXX(name)) look_up(found.name, library, #name);
    WHYRSS_REAL_FUNCTIONS(WHYRSS_LOOK_UP)
#undef WHYRSS_LOOK_UP
#undef WHYRSS_IS_CXX
    real = found;
    break;
  }
  drop_lookup_error();
  errno = saved_errno;
}

void* bootstrap_allocate(std::size_t size, std::size_t alignment) noexcept {
  const std::size_t step = alignment < 16 ? 16 : alignment;
  if (size > kArenaBytes || step > kArenaBytes) return nullptr;
  const auto base = reinterpret_cast<std::uintptr_t>(g_arena);
  std::size_t used = g_arena_used.load(std::memory_order_relaxed);
  std::size_t start = 0;
  do {
    start = ((base + used + step - 1) & ~(step - 1)) - base;
    if (start + size > kArenaBytes) {
      errno = ENOMEM;
      return nullptr;
    }
  } while (!g_arena_used.compare_exchange_weak(used, start + size, std::memory_order_relaxed));
  // A free of this address must take the slow path, which knows the arena.
  live_blocks().mark_for_slow_release(g_arena + start);
  return g_arena + start;
}

std::size_t bootstrap_bytes_from(const void* block) noexcept {
  return static_cast<std::size_t>(g_arena + kArenaBytes - static_cast<const char*>(block));
}

}  // namespace whyrss::shim
