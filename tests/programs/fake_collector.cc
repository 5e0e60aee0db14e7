// Stands in for `whyrss collect` in tests of how the library starts it. Takes its arguments, names
// itself as the reader of the pool in FAKE_SESSION, writes what it got into OUTPUT/seen, answers with the
// session (unless FAKE_SILENT is set) and stays until the target has gone.
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "shim/trace/pool.h"

int main(int argc, char** argv) {
  std::string output;
  pid_t target = 0;
  int ready_fd = -1;
  for (int index = 2; index + 1 < argc; index += 2) {
    if (std::strcmp(argv[index], "--output") == 0) output = argv[index + 1];
    if (std::strcmp(argv[index], "--target") == 0) target = std::atoi(argv[index + 1]);
    if (std::strcmp(argv[index], "--ready-fd") == 0) ready_fd = std::atoi(argv[index + 1]);
  }
  const char* session = std::getenv("FAKE_SESSION");
  if (session == nullptr || argc < 2 || std::strcmp(argv[1], "collect") != 0 || target == 0) return 1;
  const char* pool_path = std::strchr(session, ':') + 1;
  const int pool_fd = open(pool_path, O_RDWR | O_CLOEXEC);
  struct stat status {};
  if (pool_fd < 0 || fstat(pool_fd, &status) != 0) return 2;
  void* mapping =
      mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ | PROT_WRITE, MAP_SHARED, pool_fd, 0);
  const whyrss::trace::PoolView pool = whyrss::trace::open_pool(mapping, static_cast<std::uint64_t>(status.st_size));
  if (!pool) return 3;
  pool.header->reader_pid.store(static_cast<std::uint32_t>(getpid()));

  if (FILE* seen = std::fopen((output + "/seen").c_str(), "we"); seen != nullptr) {
    const char* preload = std::getenv("LD_PRELOAD");
    std::fprintf(seen, "preload=%s\nsession=%s\ntarget=%d\nown_session=%d\n", preload != nullptr ? preload : "(none)",
                 std::getenv("WHYRSS_SESSION") != nullptr ? "set" : "(none)", target, getsid(0) != getsid(target));
    char link[64] = {};
    std::fprintf(seen, "stdout=%s\n", readlink("/proc/self/fd/1", link, sizeof(link) - 1) > 0 ? link : "?");
    std::fclose(seen);
  }
  if (std::getenv("FAKE_SILENT") == nullptr) {
    const std::string line = std::string("WHYRSS_SESSION ") + session + "\n";
    if (write(ready_fd, line.data(), line.size()) < 0) return 4;
  }
  close(ready_fd);
  if (std::getenv("FAKE_SILENT") != nullptr) return 0;
  while (kill(target, 0) == 0) usleep(20'000);
  return 0;
}
