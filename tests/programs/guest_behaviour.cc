// guest_behaviour WHAT [ARGS]: one thing that a preloaded library could break or miss. Exit status 0:
// the program saw what it would see without the library.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "shim/whyrss.h"

extern char** environ;

namespace {

constexpr std::size_t kMiB = 1 << 20;
constexpr int kHighestGiven = 3;  // the harness gives stdio only; 3 is the directory being read

int status_of(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) return 100;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}

// Overwrites the stack below the caller's frame, as calls before exec in a vfork child do.
__attribute__((noinline)) unsigned deep(unsigned depth) {
  volatile unsigned char bytes[512];
  for (unsigned index = 0; index < sizeof(bytes); ++index) bytes[index] = static_cast<unsigned char>(depth + index);
  const unsigned below = depth > 0 ? deep(depth - 1) : 0;
  return below + bytes[depth % sizeof(bytes)];
}

int run_vfork(char** arguments) {
  const volatile int local = 4711;
  for (int round = 0; round < 20; ++round) {
    const pid_t child = vfork();
    if (child == 0) {
      if (deep(40) == 1) _exit(99);
      execv(arguments[0], arguments);
      _exit(98);
    }
    if (child < 0 || status_of(child) != 0 || local != 4711) return 1;
  }
  return 0;
}

int run_syscall() {
  void* mapped = reinterpret_cast<void*>(
      syscall(SYS_mmap, nullptr, 3 * kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L));
  if (mapped == MAP_FAILED) return 1;
  std::memset(mapped, 1, 3 * kMiB);
  void* moved = reinterpret_cast<void*>(syscall(SYS_mremap, mapped, 3 * kMiB, 5 * kMiB, MREMAP_MAYMOVE, 0L));
  if (moved == MAP_FAILED) return 2;
  if (syscall(SYS_munmap, moved, 5 * kMiB) != 0) return 3;
  errno = 0;
  if (syscall(SYS_mmap, nullptr, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L) != -1 || errno != EINVAL) return 4;
  errno = 0;
  if (syscall(SYS_close, -1) != -1 || errno != EBADF) return 5;
  // Six arguments to a call that is not ours.
  int pair[2];
  if (pipe(pair) != 0 || write(pair[1], "abcdef", 6) != 6) return 6;
  int other[2];
  if (pipe(other) != 0) return 7;
  if (syscall(SYS_splice, pair[0], nullptr, other[1], nullptr, 6UL, 0U) != 6) return 8;
  return syscall(SYS_getpid) == getpid() ? 0 : 9;
}

int run_maps() {
  void* first = mmap(nullptr, kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (first == MAP_FAILED) return 1;
  if (madvise(first, kMiB, MADV_DONTNEED) != 0 || mprotect(first, kMiB, PROT_READ) != 0) return 2;
  void* moved = mremap(first, kMiB, 2 * kMiB, MREMAP_MAYMOVE);
  if (moved == MAP_FAILED || munmap(moved, 2 * kMiB) != 0) return 3;
  void* before = sbrk(static_cast<intptr_t>(kMiB));
  if (before == reinterpret_cast<void*>(-1) || brk(before) != 0) return 4;
  const int id = shmget(IPC_PRIVATE, kMiB, 0600);
  void* attached = shmat(id, nullptr, 0);
  shmctl(id, IPC_RMID, nullptr);
  if (attached == reinterpret_cast<void*>(-1) || shmdt(attached) != 0) return 5;
  errno = 0;
  if (mmap(nullptr, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED || errno != EINVAL) return 6;
  constexpr unsigned kNoFlag = 1U << 25;
  if (memfd_create("guest", kNoFlag) != -1 || errno != EINVAL) return 7;
  errno = EAGAIN;
  return memfd_create("guest", MFD_CLOEXEC) >= 0 && errno == EAGAIN ? 0 : 8;
}

// Whether it is open, with these permissions, and errno was left alone.
bool has_opened(int fd, mode_t mode = 0640) {
  struct stat facts {};
  const bool is_so = errno == EAGAIN && fd >= 0 && fstat(fd, &facts) == 0 && (facts.st_mode & 07777) == mode;
  close(fd);
  errno = EAGAIN;
  return is_so;
}

bool has_opened(std::FILE* file) {
  const bool is_so = errno == EAGAIN && file != nullptr;
  if (file != nullptr) std::fclose(file);
  errno = EAGAIN;
  return is_so;
}

bool fails_with(int error, int fd) {
  const bool is_so = fd == -1 && errno == error;
  errno = EAGAIN;
  return is_so;
}

void* open_for_ever(void* path) {
  open(static_cast<const char*>(path), O_RDONLY);  // of a pipe that nobody writes to
  return nullptr;
}

// Files that are made, emptied and opened; twelve of the calls find them empty in /dev/shm.
int run_opens(const std::string& folder) {
  const std::string name = "guest-" + std::to_string(getpid()), path = "/dev/shm/" + name;
  const char* const file = path.c_str();
  const int shm = open("/dev/shm", O_RDONLY | O_DIRECTORY);
  umask(0);
  errno = EAGAIN;
  if (!has_opened(open(file, O_CREAT | O_EXCL | O_RDWR, 0640)) || !has_opened(open64(file, O_CREAT | O_RDWR, 0600)) ||
      !has_opened(openat(shm, name.c_str(), O_CREAT | O_RDWR, 0600)) ||
      !has_opened(openat64(shm, file, O_TRUNC | O_RDWR)))
    return 1;
  if (!has_opened(creat(file, 0600)) || !has_opened(creat64(file, 0600))) return 2;
  if (!has_opened(std::fopen(file, "w")) || !has_opened(fopen64(file, "a")) || !has_opened(std::fopen(file, "r")))
    return 3;
  const int full = open(file, O_TRUNC | O_WRONLY);
  if (write(full, "x", 1) != 1 || close(full) != 0) return 4;
  errno = EAGAIN;
  if (!has_opened(open(file, O_CREAT | O_RDWR, 0600)) || !has_opened(std::fopen(file, "a")) ||
      !has_opened(open(file, O_RDONLY)) || !has_opened(open(file, O_TRUNC | O_RDWR)))
    return 5;
  if (!has_opened(open("/dev/shm", O_TMPFILE | O_RDWR, 0604), 0604) ||
      !has_opened(open64("/dev/shm", O_TMPFILE | O_RDWR, 0604), 0604))
    return 6;
  if (!has_opened(open((folder + "/elsewhere").c_str(), O_CREAT | O_RDWR, 0640))) return 7;
  const char* volatile no_address = reinterpret_cast<const char*>(8);
  if (!fails_with(EEXIST, open(file, O_CREAT | O_EXCL | O_RDWR, 0600)) ||
      !fails_with(EFAULT, open(no_address, O_CREAT, 0)) ||
      !fails_with(ENOENT, open("/dev/shm.none/x", O_CREAT | O_RDWR, 0600)))
    return 8;
  if (std::fopen("/dev/shm/none/x", "w") != nullptr || errno != ENOENT || unlink(file) != 0 || close(shm) != 0)
    return 9;
  std::string fifo = folder + "/fifo";
  pthread_t thread{};
  void* result = nullptr;
  if (mkfifo(fifo.c_str(), 0600) != 0 || pthread_create(&thread, nullptr, open_for_ever, fifo.data()) != 0) return 10;
  usleep(10'000);
  return pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED ? 0 : 11;
}

int run_fork(bool raw) {
  std::vector<char> inherited(4 * kMiB, 'x');
  const pid_t child = raw ? static_cast<pid_t>(syscall(SYS_fork)) : fork();
  if (child == 0) {
    void* own = std::malloc(kMiB);
    std::free(own);
    _exit(inherited[kMiB] == 'x' ? 7 : 1);
  }
  return status_of(child) == 7 ? 0 : 1;
}

// A child that says its first word when the one that forked it has ended.
int run_orphan() {
  int gone[2];
  if (pipe(gone) != 0) return 1;
  const pid_t middle = fork();
  if (middle == 0) {
    // By a raw call nothing of ours runs in the child before it allocates.
    const pid_t parent = getpid();
    if (syscall(SYS_fork) == 0) {
      while (getppid() == parent) usleep(1000);
      std::free(std::malloc(kMiB));
      _exit(write(gone[1], "", 1) == 1 ? 0 : 1);
    }
    _exit(0);
  }
  close(gone[1]);
  char byte = 1;
  return status_of(middle) == 0 && read(gone[0], &byte, 1) == 1 && byte == 0 ? 0 : 1;
}

// errno stays through successful calls; the free descriptors are the same as before.
int run_errno() {
  const int first_free = dup(0);
  close(first_free);
  errno = 4711;
  void* block = std::malloc(kMiB);
  void* zeroed = std::calloc(1, kMiB);
  block = std::realloc(block, 2 * kMiB);
  std::free(block);
  std::free(zeroed);
  ::operator delete(::operator new(kMiB));
  void* mapped = mmap(nullptr, kMiB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(mapped, kMiB);
  if (errno != 4711) return 1;
  if (std::realloc(std::malloc(kMiB), SIZE_MAX / 2) != nullptr || errno != ENOMEM) return 2;
  const int now_free = dup(0);
  close(now_free);
  if (now_free != first_free) return 3;
  // The directory's own descriptor is the lowest free one: nothing else was opened meanwhile.
  DIR* descriptors = opendir("/proc/self/fd");
  int highest = 0;
  for (const dirent* entry = readdir(descriptors); entry != nullptr; entry = readdir(descriptors))
    highest = std::max(highest, std::atoi(entry->d_name));
  const int own = dirfd(descriptors);
  closedir(descriptors);
  return own == first_free && highest <= kHighestGiven ? 0 : 4;
}

int run_exec(char** arguments) {
  const pid_t child = fork();
  if (child == 0) {
    execvp(arguments[0], arguments);
    _exit(98);
  }
  const int by_exec = status_of(child);
  pid_t spawned = 0;
  if (posix_spawnp(&spawned, arguments[0], nullptr, nullptr, arguments, environ) != 0) return 97;
  const int by_spawn = status_of(spawned);
  return by_exec == by_spawn ? by_exec : 96;
}

__attribute__((noinline)) int throw_deep(int depth) {
  if (depth == 0) throw std::runtime_error("thrown on purpose");
  return throw_deep(depth - 1) + 1;
}

int run_exceptions() {
  for (int round = 0; round < 100; ++round) {
    try {
      throw_deep(20);
      return 1;
    } catch (const std::runtime_error&) {
    }
    try {
      std::free(::operator new(SIZE_MAX / 4 + static_cast<std::size_t>(round)));
      return 2;
    } catch (const std::bad_alloc&) {
    }
  }
  WHYRSS_MARK("begin");
  ::operator delete(::operator new(kMiB));  // seen again after all the throws
  WHYRSS_MARK("end");
  return 0;
}

struct Witness {
  bool* destroyed;
  ~Witness() { *destroyed = true; }
};

void* leave_by_exit(void* destroyed) {
  const Witness witness{static_cast<bool*>(destroyed)};
  void* block = std::malloc(kMiB);
  std::free(block);
  pthread_exit(nullptr);
}

void* wait_for_cancel(void* destroyed) {
  const Witness witness{static_cast<bool*>(destroyed)};
  while (true) pause();
}

int run_threads() {
  for (int round = 0; round < 50; ++round) {
    bool exited = false;
    bool cancelled = false;
    pthread_t one{};
    pthread_t two{};
    void* result = nullptr;
    if (pthread_create(&one, nullptr, leave_by_exit, &exited) != 0) return 1;
    if (pthread_create(&two, nullptr, wait_for_cancel, &cancelled) != 0) return 2;
    pthread_cancel(two);
    pthread_join(one, nullptr);
    pthread_join(two, &result);
    if (!exited || result != PTHREAD_CANCELED) return 3;
  }
  std::vector<std::thread> many;
  for (int index = 0; index < 8; ++index)
    many.emplace_back([] {
      for (int round = 0; round < 200; ++round) std::free(std::malloc(kMiB / 16));
    });
  for (std::thread& thread : many) thread.join();
  return 0;
}

int run_reaper() {
  // No child at all, or only ours: every wait says ECHILD.
  errno = 0;
  if (wait(nullptr) != -1 || errno != ECHILD) return 1;
  const pid_t child = fork();
  if (child == 0) _exit(5);
  int status = 0;
  if (wait(&status) != child || WEXITSTATUS(status) != 5) return 2;
  errno = 0;
  if (waitpid(-1, nullptr, WNOHANG) != -1 || errno != ECHILD) return 3;
  siginfo_t info{};
  errno = 0;
  return waitid(P_ALL, 0, &info, WEXITED) == -1 && errno == ECHILD ? 0 : 4;
}

void map_at_end() { static_cast<void>(mmap(nullptr, kMiB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)); }

// Each maps a MiB as it is destroyed, which is seen.
struct MapsAtEnd {
  bool wanted = false;
  ~MapsAtEnd() {
    if (wanted) map_at_end();
  }
};
MapsAtEnd destroyed_last;
thread_local MapsAtEnd destroyed_first;

void leave_by_signal(int) { std::exit(0); }

// As programs end, with destructors and handlers that run then.
int run_end(std::string_view how) {
  destroyed_last.wanted = destroyed_first.wanted = true;
  static MapsAtEnd destroyed_between;
  destroyed_between.wanted = true;
  if (std::atexit(map_at_end) != 0) return 1;
  if (how == "exit") std::exit(0);
  if (how == "handler" && std::atexit([] { std::exit(0); }) != 0) return 2;
  if (how == "signal") {
    std::signal(SIGUSR1, leave_by_signal);
    std::raise(SIGUSR1);
  }
  if (how == "thread") std::thread([] { std::exit(0); }).join();
  if (how == "pthread_exit") pthread_exit(nullptr);
  if (how == "last_thread") {
    std::thread([leader = getpid()] {
      const std::string stat = "/proc/self/task/" + std::to_string(leader) + "/stat";
      while (true) {  // until the first thread is a zombie
        char text[64] = {};
        const int fd = open(stat.c_str(), O_RDONLY);
        const bool was_read = read(fd, text, sizeof(text) - 1) > 0;
        close(fd);
        if (was_read && std::string_view(text).find(") Z") != std::string_view::npos) return;
        usleep(1000);
      }
    }).detach();
    pthread_exit(nullptr);
  }
  if (how == "fork") {
    const pid_t child = fork();
    if (child == 0) std::exit(0);
    return status_of(child);
  }
  return 0;
}

// Many large blocks live at once, each released once.
int run_many_blocks() {
  std::vector<void*> blocks(3000);
  for (void*& block : blocks) block = std::malloc(140'000);  // more than are counted
  for (void* block : blocks) std::free(block);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 90;
  const std::string_view what = argv[1];
  if (what == "vfork") return run_vfork(argv + 2);
  if (what == "syscall") return run_syscall();
  if (what == "maps") return run_maps();
  if (what == "opens") return run_opens(argv[2]);
  if (what == "fork") return run_fork(false);
  if (what == "raw_fork") return run_fork(true);
  if (what == "orphan") return run_orphan();
  if (what == "errno") return run_errno();
  if (what == "exec") return run_exec(argv + 2);
  if (what == "exceptions") return run_exceptions();
  if (what == "threads") return run_threads();
  if (what == "reaper") return run_reaper();
  if (what == "many_blocks") return run_many_blocks();
  if (what == "end" && argc > 2) return run_end(argv[2]);
  if (what == "status") _exit(argc > 2 ? std::atoi(argv[2]) : 0);
  if (what == "return") return argc > 2 ? std::atoi(argv[2]) : 0;
  return 91;
}
