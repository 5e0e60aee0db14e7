#include "support/last_words.h"

#include <sys/resource.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <new>

#include "support/file.h"

namespace whyrss {
namespace {

std::atomic<bool> g_said{false};
int g_status = 1;

// Enough for a signal's frame with the largest registers (AVX-512, AMX) and the few calls from there.
constexpr std::size_t kStackBytes = 64 * 1024;
alignas(64) std::array<std::byte, kStackBytes> g_stack;

// A fault so near to the stack pointer is one of the stack: a function's frame, with an array in it.
constexpr std::uintptr_t kFrameBytes = 1 << 20;

bool is_stack_fault(const siginfo_t& info, const void* context) {
  const auto* registers = static_cast<const ucontext_t*>(context);
  const auto stack = static_cast<std::uintptr_t>(registers->uc_mcontext.gregs[REG_RSP]);
  const auto address = reinterpret_cast<std::uintptr_t>(info.si_addr);
  rlimit limit{};
  const bool is_small = getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur < 8 * kFrameBytes;
  return is_small && address + kFrameBytes > stack && address < stack + kFrameBytes;
}

std::string_view words_for(int number, const siginfo_t& info, const void* context) {
  switch (number) {
    case SIGXCPU:
      return "the limit on its CPU time is reached (ulimit -t)";
    case SIGSEGV:
    case SIGBUS:
      return is_stack_fault(info, context) ? "the stack is too small (ulimit -s)"
                                           : "internal error: it accessed memory that is not there (please report it)";
    default:
      return "internal error: it ended itself (please report it)";
  }
}

void speak_and_die(int number, siginfo_t* info, void* context) {
  if (number != SIGABRT || !has_said()) say(words_for(number, *info, context));
  raise(number);  // the action is the default again
}

[[noreturn]] void end_uncaught() {
  try {
    if (const std::exception_ptr current = std::current_exception()) std::rethrow_exception(current);
    say("internal error: it cannot go on (please report it)");
  } catch (const std::bad_alloc&) {
    say(kOutOfMemory);
  } catch (const std::exception& error) {
    say(error.what());
  } catch (...) {
    say("internal error: something unknown was thrown (please report it)");
  }
  _exit(g_status);
}

void fail_the_write(int) {}

void handle(int number, void (*handler)(int, siginfo_t*, void*)) {
  struct sigaction action {};
  if (sigaction(number, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return;  // as it was inherited
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESETHAND | SA_NODEFER;
  sigaction(number, &action, nullptr);
}

}  // namespace

void say(std::string_view text) {
  g_said.store(true, std::memory_order_relaxed);
  constexpr std::string_view kWho = "whyrss: ", kEnd = "\n";
  const auto part = [](std::string_view piece) {
    return iovec{.iov_base = const_cast<char*>(piece.data()), .iov_len = piece.size()};
  };
  const std::array parts{part(kWho), part(text), part(kEnd)};
  const ssize_t wrote = writev(STDERR_FILENO, parts.data(), parts.size());
  // Into a pipe that is nearly full.
  if (wrote < static_cast<ssize_t>(kWho.size())) return;
  const auto of_text = static_cast<std::size_t>(wrote) - kWho.size();
  if (of_text < text.size() && write_fully(STDERR_FILENO, text.substr(of_text))) write_fully(STDERR_FILENO, kEnd);
}

bool has_said() { return g_said.load(std::memory_order_relaxed); }

void install_last_words(int status) {
  g_status = status;
  const stack_t stack{.ss_sp = g_stack.data(), .ss_flags = 0, .ss_size = g_stack.size()};
  sigaltstack(&stack, nullptr);
  for (const int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGXCPU}) handle(number, speak_and_die);
  struct sigaction size {};
  if (sigaction(SIGXFSZ, nullptr, &size) == 0 && size.sa_handler == SIG_DFL) {
    size.sa_handler = fail_the_write;  // not SIG_IGN: programs that we start would inherit that
    size.sa_flags = SA_RESTART;
    sigaction(SIGXFSZ, &size, nullptr);
  }
  std::set_terminate(end_uncaught);
}

}  // namespace whyrss
