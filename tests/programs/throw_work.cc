// C++ code whose exceptions pass ten frames, for hosts that link it, link only its library, or dlopen it.
#include <execinfo.h>
#include <pthread.h>

#include <cstdio>
#include <stdexcept>

namespace {

struct Counted {
  explicit Counted(int& count) : count_(count) {}
  ~Counted() { ++count_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  int& count_;
};

[[gnu::noinline]] int fall(int depth, int& destroyed) {
  const Counted frame(destroyed);
  if (depth == 0) throw std::runtime_error("fell");
  return fall(depth - 1, destroyed) + 1;
}

void* leave(void* count) {
  const Counted frame(*static_cast<int*>(count));
  pthread_exit(count);
}

}  // namespace

extern "C" {

// Throws that many times through ten frames; how many destructors ran.
int throw_many(int count) {
  int destroyed = 0;
  for (int i = 0; i < count; ++i) {
    try {
      fall(10, destroyed);
    } catch (const std::runtime_error&) {
    }
  }
  return destroyed;
}

// Every function of the unwinder that C++ code and its runtime bind to; 0 when all went well.
int use_unwinder() {
  void* frames[64];
  const int depth = backtrace(frames, 64);
  int left = 0;
  pthread_t thread{};
  void* result = nullptr;
  if (pthread_create(&thread, nullptr, leave, &left) != 0 || pthread_join(thread, &result) != 0) return 1;
  try {
    try {
      int destroyed = 0;
      fall(3, destroyed);
    } catch (...) {
      throw;
    }
  } catch (const std::exception& error) {
    std::printf("caught %s, a thread left through %d destructor, backtrace of %s\n", error.what(), left,
                depth > 1 ? "several frames" : "nothing");
  }
  return result == &left && left == 1 ? 0 : 2;
}
}
