// The library under test plus a SIGTRAP handler that walks Python's frames after every single instruction of
// the calling thread, as the handler of a page fault does: a fault can come at any of them.
//
//   python_steps_begin(least)   from the next instruction on
//   python_steps_are_over()     at least that many have been taken
//   python_steps_end(path)      stops and writes what was seen: see Log
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "shim/events/guard.h"
#include "shim/events/thread_state.h"
#include "shim/stacks/python_frames.h"
#include "shim/sys/raw_io.h"

namespace {

using namespace whyrss;

constexpr std::uint32_t kTrapFlag = 0x100;
constexpr std::size_t kSeenSlots = 1U << 20;
constexpr std::size_t kLogWords = 16U << 20;

// Little-endian 32-bit words: walks, walks that were torn, instructions of the library itself. Then for each
// sequence of frames seen first: whether the walk was torn, its count, code ids from the innermost on.
struct Log {
  std::uint32_t walks, torn, own_steps;
  std::size_t words;
  std::array<std::uint64_t, kSeenSlots> seen;
  std::array<std::uint32_t, kLogWords> sequences;
};

Log* g_log = nullptr;
std::array<shim::WalkedPythonFrame, trace::kMaxPythonFrames> g_frames;
std::array<std::uint32_t, trace::kMaxPythonFrames + 2> g_sequence;
std::uint32_t g_least = 0;
volatile bool g_stepping = false;

bool is_new(const std::uint32_t* words, std::size_t count) noexcept {
  std::uint64_t hash = 0x243f6a8885a308d3ULL;
  for (std::size_t i = 0; i < count; ++i) {
    hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 32;
  }
  if (hash == 0) hash = 1;
  for (std::size_t probe = 0; probe < 64; ++probe) {
    std::uint64_t& slot = g_log->seen[(hash + probe) % kSeenSlots];
    if (slot == hash) return false;
    if (slot != 0) continue;
    slot = hash;
    return true;
  }
  return false;
}

void walk_here() noexcept {
  shim::ThreadState& thread = shim::thread_state();
  const shim::Busy busy(thread);
  if (!busy.taken()) {
    ++g_log->own_steps;
    return;
  }
  const shim::PythonWalk walk = shim::walk_python(g_frames, shim::Access::probed);
  ++g_log->walks;
  if (walk.torn) ++g_log->torn;
  std::size_t count = 2;
  for (std::size_t i = 0; i < walk.count; ++i) {
    const trace::PythonFrame frame = shim::describe_frame(g_frames[i], thread.writer, thread.lease);
    if ((frame.flags & trace::PythonFrameFlags::incomplete) == 0) g_sequence[count++] = frame.code_id;
  }
  g_sequence[0] = walk.torn ? 1 : 0;
  g_sequence[1] = static_cast<std::uint32_t>(count - 2);
  if (!is_new(g_sequence.data(), count) || g_log->words + count > kLogWords) return;
  std::memcpy(&g_log->sequences[g_log->words], g_sequence.data(), count * sizeof(std::uint32_t));
  g_log->words += count;
}

void on_step(int, siginfo_t*, void* context) {
  if (!g_stepping) {
    static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] &= ~static_cast<greg_t>(kTrapFlag);
    return;
  }
  walk_here();
}

}  // namespace

extern "C" {

[[gnu::visibility("default")]] int python_steps_begin(std::uint32_t least) {
  void* memory = mmap(nullptr, sizeof(Log), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return -1;
  g_log = static_cast<Log*>(memory);
  g_least = least;
  g_stepping = true;
  struct sigaction action {};
  action.sa_sigaction = on_step;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  if (sigaction(SIGTRAP, &action, nullptr) != 0) return -1;
  __asm__ volatile("pushfq; orq %0, (%%rsp); popfq" : : "i"(kTrapFlag) : "cc", "memory");
  return 0;
}

[[gnu::visibility("default")]] int python_steps_are_over() {
  return g_log->walks + g_log->own_steps >= g_least ? 1 : 0;
}

[[gnu::visibility("default")]] int python_steps_end(const char* path) {
  g_stepping = false;
  __asm__ volatile("nop; nop" : : : "memory");
  const long file = shim::raw_syscall(SYS_open, shim::as_long(path), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const std::array<std::uint32_t, 3> head{g_log->walks, g_log->torn, g_log->own_steps};
  const auto size = static_cast<long>(g_log->words * sizeof(std::uint32_t));
  const bool written = shim::raw_syscall(SYS_write, file, shim::as_long(head.data()), sizeof(head)) == sizeof(head) &&
                       shim::raw_syscall(SYS_write, file, shim::as_long(g_log->sequences.data()), size) == size;
  shim::raw_syscall(SYS_close, file);
  return written ? 0 : -1;
}
}
