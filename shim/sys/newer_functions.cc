#include "shim/sys/newer_functions.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>

#include <atomic>
#include <cerrno>

#include "shim/sys/raw_io.h"
#include "shim/sys/real.h"

namespace whyrss::shim {
namespace {

struct ThreadDestructor {
  void (*destroy)(void*);
  void* object;
  ThreadDestructor* earlier;
};

constinit thread_local ThreadDestructor* t_destructors = nullptr;

// They may register more.
void run_destructors(void*) noexcept {
  while (ThreadDestructor* const last = t_destructors) {
    t_destructors = last->earlier;
    last->destroy(last->object);
    real.free(last);
  }
}

void run_destructors_at_exit(int, void* unused) noexcept { run_destructors(unused); }

// A key of pthread: its destructor runs in each thread that has set it. false: libpthread is not there (yet).
bool find_key(pthread_key_t& key) noexcept {
  static constinit std::atomic<std::int64_t> known{-1};
  std::int64_t value = known.load(std::memory_order_acquire);
  if (value < 0) {
    if (pthread_key_create(&key, run_destructors) != 0) return false;
    // Of two threads that make one at the same time the later one's stays unused.
    if (known.compare_exchange_strong(value, key, std::memory_order_acq_rel)) value = key;
  }
  key = static_cast<pthread_key_t>(value);
  return true;
}

// As libstdc++ does it where libc does not: what the thread that calls exit() has registered.
void run_at_exit_too() noexcept {
  static constinit std::atomic<bool> registered{false};
  if (!registered.exchange(true, std::memory_order_relaxed)) on_exit(run_destructors_at_exit, nullptr);
}

}  // namespace

ssize_t no_preadv64v2(int, const iovec*, int, off64_t, int) noexcept {
  errno = ENOSYS;
  return -1;
}

int no_mlock2(const void*, std::size_t, unsigned) noexcept {
  errno = ENOSYS;
  return -1;
}

int make_memfd(const char* name, unsigned flags) noexcept {
  const long made = raw_syscall(SYS_memfd_create, as_long(name), static_cast<long>(flags));
  if (!is_raw_error(made)) return static_cast<int>(made);
  errno = static_cast<int>(-made);
  return -1;
}

int run_at_thread_end(void (*destroy)(void*), void* object, void*) noexcept {
  auto* const node = static_cast<ThreadDestructor*>(real.malloc(sizeof(ThreadDestructor)));
  if (node == nullptr) return -1;
  *node = {.destroy = destroy, .object = object, .earlier = t_destructors};
  t_destructors = node;
  run_at_exit_too();
  if (pthread_key_t key = 0; find_key(key)) pthread_setspecific(key, node);
  return 0;
}

}  // namespace whyrss::shim
