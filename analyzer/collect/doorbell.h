// Turns the pool's futex doorbell into a descriptor, so that one poll() waits for it, for process ends
// and for record.
#pragma once

#include <pthread.h>

#include <atomic>

#include "shim/trace/pool.h"
#include "support/file.h"

namespace whyrss {

// Runs a thread with a small stack that waits on the futex. Where no thread can be had, fd() never
// becomes readable, and the collector's own tick has to do.
class Doorbell {
 public:
  explicit Doorbell(trace::PoolView pool);
  Doorbell(const Doorbell&) = delete;
  Doorbell& operator=(const Doorbell&) = delete;
  ~Doorbell();

  [[nodiscard]] int fd() const { return event_.get(); }
  void clear();

 private:
  struct Shared {
    trace::PoolView pool;
    int event_fd;
    std::atomic<bool> ended;
  };
  static void* wait_forever(void* shared);

  Fd event_;
  Shared shared_;
  pthread_t thread_{};
  bool running_ = false;
};

}  // namespace whyrss
