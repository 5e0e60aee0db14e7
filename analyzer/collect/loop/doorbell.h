// Turns the pool's futex doorbell into a descriptor, so that one poll() waits for it, for process ends
// and for record.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "shim/trace/pool.h"
#include "support/file.h"

namespace whyrss {

// Runs a thread with a small stack that waits on the futex. Where no thread can be had, error() says why and fd()
// never becomes readable: who waits for it has to try from time to time.
class Doorbell {
 public:
  explicit Doorbell(trace::PoolView pool);
  Doorbell(const Doorbell&) = delete;
  Doorbell& operator=(const Doorbell&) = delete;
  ~Doorbell();

  [[nodiscard]] int fd() const { return event_.get(); }
  [[nodiscard]] int error() const { return error_; }  // errno; 0 with a thread
  void clear();

 private:
  struct Shared {
    trace::PoolView pool;
    int event_fd;
    std::uint32_t seen;  // rings before the thread was there count too
    std::atomic<bool> ended;
  };
  static void* wait_forever(void* shared);

  Fd event_;
  Shared shared_;
  pthread_t thread_{};
  int error_ = 0;
};

}  // namespace whyrss
