// What a program may do around its allocator: signal handlers, threads, libraries, other processes.
#include <dlfcn.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstdlib>

#include "heap_hazards.h"
#include "heap_stage.h"

namespace hazards {
namespace {

// Handlers.

volatile std::sig_atomic_t g_in_allocator = 0, g_ticks = 0;
volatile bool g_anywhere = false;  // the allocator may be interrupted, and left for good
sigjmp_buf g_out;
volatile std::sig_atomic_t g_jumps = 0;

void allocate_in_handler(int) {
  g_ticks = g_ticks + 1;
  if (g_in_allocator != 0 && !g_anywhere) return;
  void* block = std::malloc(g_ticks % 4 == 0 ? 50'000 : 200);
  std::free(std::realloc(block, 3000));
}

void jump_out_of_handler(int) {
  g_ticks = g_ticks + 1;
  if (g_in_allocator != 0 && !g_anywhere) return;
  std::free(std::malloc(300));
  g_jumps = g_jumps + 1;
  siglongjmp(g_out, 1);
}

void tick(void (*handler)(int), long interval_us) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &action, nullptr);
  const itimerval timer{.it_interval = {.tv_sec = 0, .tv_usec = interval_us},
                        .it_value = {.tv_sec = 0, .tv_usec = interval_us}};
  setitimer(ITIMER_REAL, &timer, nullptr);
}

void allocate_while(int wanted_ticks, volatile std::sig_atomic_t& ticks) {
  std::uint64_t random = 11;
  while (ticks < wanted_ticks) {
    g_in_allocator = 1;
    void* block = std::malloc(stage::random_size(random, 1, 34'000));
    g_in_allocator = 0;
    for (int pause = 0; pause < 1000; ++pause) asm volatile("");
    g_in_allocator = 1;
    std::free(block);
    g_in_allocator = 0;
  }
}

}  // namespace

void handlers() {
  tick(allocate_in_handler, 300);
  allocate_while(300, g_ticks);
  tick(SIG_IGN, 0);
  say("ticked\n");
}

void jumps() {
  if (sigsetjmp(g_out, 1) == 0) tick(jump_out_of_handler, 300);  // not before there is a place to jump to
  if (g_jumps < 200) allocate_while(1 << 30, g_ticks);
  tick(SIG_IGN, 0);
  say("jumped\n");
}

void handlers_anywhere() {
  g_anywhere = true;
  handlers();
}

void jumps_anywhere() {
  g_anywhere = true;
  jumps();
}

namespace {

// Threads and ends.

std::atomic<unsigned> g_destroyed{0};

struct AtThreadEnd {
  void* block = std::malloc(700);
  AtThreadEnd() = default;
  AtThreadEnd(const AtThreadEnd&) = delete;
  AtThreadEnd& operator=(const AtThreadEnd&) = delete;
  ~AtThreadEnd() {
    std::free(block);
    churn(20);
    ++g_destroyed;
  }
};

pthread_key_t g_key;

void destroy_key(void* block) {
  std::free(block);
  churn(20);
  // Some go round again, as long as there are rounds.
  if (++g_destroyed % 3 == 0) pthread_setspecific(g_key, std::malloc(900));
}

void with_destructors(std::size_t) {
  thread_local AtThreadEnd at_end;
  pthread_setspecific(g_key, std::malloc(at_end.block != nullptr ? 800 : 1));
}

}  // namespace

void thread_ends() {
  pthread_key_create(&g_key, destroy_key);
  for (int round = 0; round < 20; ++round) stage::run_threads(with_destructors, 4);
  say(g_destroyed >= 160 ? "all destroyed\n" : "too few destroyed\n");
}

void many_threads() {
  for (int round = 0; round < 500; ++round) stage::run_threads([](std::size_t) { churn(10); }, 4);
  say("2000 threads\n");
}

namespace {

struct AfterMain {
  void* block = nullptr;
  AfterMain() = default;
  AfterMain(const AfterMain&) = delete;
  AfterMain& operator=(const AfterMain&) = delete;
  ~AfterMain() {
    if (block == nullptr) return;
    std::free(block);
    churn(1000);
    say("after main\n");
  }
};
AfterMain g_after_main;

}  // namespace

void after_main() {
  g_after_main.block = std::malloc(2000);
  std::atexit([] { churn(1000); });
}

namespace {

// Libraries.

void with_plugin(int flags, bool release_here) {
  void* plugin = dlopen(g_arguments[0], RTLD_NOW | flags);
  if (plugin == nullptr) _exit(98);
  auto make_block = reinterpret_cast<void* (*)(std::size_t)>(dlsym(plugin, "make_block"));
  auto release_block = reinterpret_cast<void (*)(void*)>(dlsym(plugin, "release_block"));
  std::array<void*, 400> blocks{};
  for (std::size_t index = 0; index < blocks.size(); ++index) blocks.at(index) = make_block(index * 200);
  if (release_here) dlclose(plugin);
  for (void* block : blocks) release_here ? std::free(block) : release_block(block);
  say("plugged\n");
}

}  // namespace

void plugin_gone() { with_plugin(0, true); }
void plugin_deep() { with_plugin(RTLD_DEEPBIND, false); }
void plugin_deep_crossed() { with_plugin(RTLD_DEEPBIND, true); }

namespace {

// Other processes.

std::atomic<bool> g_stop{false};

}  // namespace

void forks() {
  pthread_t thread{};
  pthread_create(
      &thread, nullptr,
      [](void*) -> void* {
        while (!g_stop) {
          churn(50);
          usleep(20);  // what it records meanwhile is read again by every report
        }
        return nullptr;
      },
      nullptr);
  long well = 0;
  for (int round = 0; round < 16; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      churn(200);
      _exit(3);
    }
    int status = 0;
    well += child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 3;
  }
  g_stop = true;
  pthread_join(thread, nullptr);
  say("children that ended well:", well);
}

namespace {

bool ends_well(pid_t child) {
  int status = 1;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

bool runs_in_parents_memory(char* const* command) {
  const pid_t child = vfork();
  if (child == 0) {
    execvp(command[0], command);
    _exit(98);
  }
  return ends_well(child);
}

}  // namespace

void programs() {
  char name[] = "true";
  char* const command[] = {name, nullptr};
  long well = 0;
  for (int round = 0; round < 10; ++round) {
    void* block = std::malloc(1000);
    well += runs_in_parents_memory(command);
    pid_t child = 0;
    well += posix_spawnp(&child, name, nullptr, nullptr, command, environ) == 0 && ends_well(child);
    std::free(block);
  }
  say("programs that ended well:", well);
}

// Until it is killed.
void endless() {
  stage::run_threads(
      [](std::size_t) {
        for (;;) {
          churn(20'000);
          say("turn\n");
        }
      },
      2);
}

}  // namespace hazards
