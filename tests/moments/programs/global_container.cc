// A service whose global container holds memory until main returns after SIGTERM; static destructors free it then.
#include <malloc.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>

namespace {

constexpr long kEntries = 300'000;
using Payload = std::array<char, 1000>;

std::map<long, Payload> cache;
volatile std::sig_atomic_t stopped = 0;

void stop(int) { stopped = 1; }

long allocated() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<long>(info.uordblks + info.hblkhd);
}

void say(const char* what, long held) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  std::FILE* log = std::fopen(std::getenv("MOMENTS_LOG"), "a");
  if (log == nullptr) std::abort();
  std::fprintf(log, "{\"what\": \"%s\", \"pid\": %d, \"time\": %ld.%06ld, \"held\": %ld}\n", what,
               static_cast<int>(getpid()), now.tv_sec, now.tv_nsec / 1000, held);
  std::fclose(log);
}

}  // namespace

int main() {
  std::signal(SIGTERM, stop);
  const long before = allocated();
  for (long key = 0; key < kEntries; ++key) cache.try_emplace(key).first->second.fill('x');  // caches
  const long held = allocated() - before;
  say("serving", held);
  while (stopped == 0) poll(nullptr, 0, 10);
  say("stopped", held);
  return 0;
}
