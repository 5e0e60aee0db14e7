// tight_places WHAT [ARGS]: what a program may do where there is little room. Exit status 0: all went as
// without the library.
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

namespace {

constexpr std::size_t kSmallStackBytes = 16 * 1024;  // PTHREAD_STACK_MIN
constexpr std::size_t kLargeBytes = 100'000;

char** g_command;  // of the children

bool ended_well(pid_t child) {
  int status = 1;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

bool allocates() {
  void* block = std::realloc(std::malloc(kLargeBytes), 2 * kLargeBytes);
  std::free(block);
  return block != nullptr;
}

bool forks() {
  const pid_t child = fork();
  if (child == 0) _exit(allocates() ? 0 : 1);
  return ended_well(child);
}

bool executes() {
  const pid_t child = fork();
  if (child == 0) {
    execv(g_command[0], g_command);
    _exit(98);
  }
  return ended_well(child);
}

bool executes_in_parents_memory(bool by_name) {
  const pid_t child = vfork();
  if (child == 0) {
    by_name ? execvp("true", g_command) : execv(g_command[0], g_command);
    _exit(98);
  }
  return ended_well(child);
}

bool spawns(bool by_name) {
  pid_t child = 0;
  const int error = by_name ? posix_spawnp(&child, "true", nullptr, nullptr, g_command, environ)
                            : posix_spawn(&child, g_command[0], nullptr, nullptr, g_command, environ);
  return error == 0 && ended_well(child);
}

void* run_everything(void*) {
  const bool well = allocates() && forks() && executes() && executes_in_parents_memory(false) &&
                    executes_in_parents_memory(true) && spawns(false) && spawns(true);
  return well ? &g_command : nullptr;
}

int run_small_stack() {
  pthread_attr_t attributes;
  pthread_t thread{};
  void* result = nullptr;
  pthread_attr_init(&attributes);
  if (pthread_attr_setstacksize(&attributes, kSmallStackBytes) != 0) return 1;
  if (pthread_create(&thread, &attributes, run_everything, nullptr) != 0) return 2;
  pthread_join(thread, &result);
  return result == &g_command ? 0 : 3;
}

int count_mappings() {
  std::FILE* maps = std::fopen("/proc/self/maps", "r");
  int lines = 0;
  for (int letter = std::fgetc(maps); letter != EOF; letter = std::fgetc(maps)) lines += letter == '\n' ? 1 : 0;
  std::fclose(maps);
  return lines;
}

// Children that the library keeps out of, made in this process's memory, leave nothing in it.
int run_vfork_often() {
  if (!executes_in_parents_memory(false)) return 1;
  const int before = count_mappings();
  for (int round = 0; round < 20; ++round)
    if (!executes_in_parents_memory(false)) return 2;
  const int grown = count_mappings() - before;
  if (grown > 3) std::printf("%d mappings more\n", grown);
  return grown > 3 ? 3 : 0;  // the heap may have got another one
}

int run_as_nobody() {
  constexpr uid_t kNobody = 65534;
  if (setgid(kNobody) != 0 || setuid(kNobody) != 0) return 1;
  return executes() ? 0 : 2;
}

int run_in_root(const char* directory) {
  if (chroot(directory) != 0 || chdir("/") != 0) return 1;
  return executes() ? 0 : 2;
}

// Pids start anew: 1 waits for any child, which is 2.
int run_own_pids() {
  if (unshare(CLONE_NEWPID) != 0) return 77;
  const pid_t first = fork();
  if (first == 0) {
    const pid_t second = fork();
    if (second == 0) _exit(0);
    int status = 1;
    _exit(getpid() == 1 && second == 2 && wait(&status) == second && status == 0 ? 0 : 1);
  }
  return ended_well(first) ? 0 : 2;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 90;
  const std::string_view what = argv[1];
  g_command = argv + 2;
  if (what == "small_stack") return run_small_stack();
  if (what == "vfork_often") return run_vfork_often();
  if (what == "as_nobody") return run_as_nobody();
  if (what == "own_pids") return run_own_pids();
  if (what == "in_root") {
    g_command = argv + 3;
    return run_in_root(argv[2]);
  }
  return 91;
}
