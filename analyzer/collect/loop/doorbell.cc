#include "collect/loop/doorbell.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace whyrss {

void* Doorbell::wait_forever(void* shared) {
  auto& [pool, event_fd, seen, ended] = *static_cast<Shared*>(shared);
  while (!ended.load()) {
    syscall(SYS_futex, &pool.header->doorbell, FUTEX_WAIT, seen, nullptr, nullptr, 0);
    const std::uint32_t now = pool.header->doorbell.load(std::memory_order_acquire);
    if (now == seen) continue;
    seen = now;
    eventfd_write(event_fd, 1);
  }
  return nullptr;
}

Doorbell::Doorbell(trace::PoolView pool)
    : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      shared_{.pool = pool,
              .event_fd = event_.get(),
              .seen = pool.header->doorbell.load(std::memory_order_acquire),
              .ended = false} {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 64 * 1024);  // under RLIMIT_AS the default 8 MiB may not fit
  error_ = pthread_create(&thread_, &attributes, wait_forever, &shared_);
  pthread_attr_destroy(&attributes);
}

Doorbell::~Doorbell() {
  shared_.ended = true;
  trace::ring_doorbell(shared_.pool);
  if (error_ == 0) pthread_join(thread_, nullptr);
}

void Doorbell::clear() {
  eventfd_t count = 0;
  eventfd_read(event_.get(), &count);
}

}  // namespace whyrss
