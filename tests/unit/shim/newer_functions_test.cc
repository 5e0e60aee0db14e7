// What stands in for functions that glibc 2.17 does not have, against libc's own of today.
#include "shim/sys/newer_functions.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "shim/sys/real.h"

extern "C" int __cxa_thread_atexit_impl(void (*destroy)(void*), void* object, void* library);  // NOLINT: libc's name
extern "C" void* __dso_handle;                                                                 // NOLINT: the compiler's

namespace whyrss::shim {

Real real{.malloc = ::malloc, .free = ::free};

namespace {

using Register = int (*)(void (*)(void*), void*, void*);

std::string g_order;
Register g_register = nullptr;

void note(void* name) { g_order += static_cast<const char*>(name); }

void register_one(void (*destroy)(void*), const char* name) {
  ASSERT_EQ(g_register(destroy, const_cast<char*>(name), &__dso_handle), 0);
}

void note_and_register(void* name) {
  note(name);
  register_one(note, "c");
}

std::string order_of_a_thread(Register registers) {
  g_register = registers;
  g_order.clear();
  std::thread([] {
    register_one(note, "a");
    register_one(note_and_register, "b");
    register_one(note, "d");
  }).join();
  return g_order;
}

TEST(NewerFunctions, DestroysAtTheEndOfAThreadInLibcSOrder) {
  EXPECT_EQ(order_of_a_thread(run_at_thread_end), "dbca");
  EXPECT_EQ(order_of_a_thread(run_at_thread_end), order_of_a_thread(__cxa_thread_atexit_impl));
}

// What a child writes to its standard output, and its exit status.
std::string output_of(void (*child)()) {
  std::array<int, 2> fds{};
  EXPECT_EQ(pipe(fds.data()), 0);
  std::fflush(nullptr);  // else the child writes it too
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(fds[1], STDOUT_FILENO);
    child();
    _exit(9);
  }
  close(fds[1]);
  std::string text;
  std::array<char, 64> part{};
  for (ssize_t got = 0; (got = read(fds[0], part.data(), part.size())) > 0;)
    text.append(part.data(), static_cast<std::size_t>(got));
  close(fds[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  return text + " " + std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

void write_name(void* name) { EXPECT_EQ(write(STDOUT_FILENO, name, 1), 1); }

TEST(NewerFunctions, DestroysWhatTheExitingThreadHas) {
  const auto child = [] {
    run_at_thread_end(write_name, const_cast<char*>("m"), nullptr);
    std::exit(3);
  };
  EXPECT_EQ(output_of(child), "m 3");
}

TEST(NewerFunctions, SayThatTheKernelHasNone) {
  errno = 0;
  EXPECT_EQ(no_mlock2(nullptr, 0, 0), -1);
  EXPECT_EQ(errno, ENOSYS);
  errno = 0;
  EXPECT_EQ(no_preadv64v2(0, nullptr, 0, 0, 0), -1);
  EXPECT_EQ(errno, ENOSYS);
}

}  // namespace
}  // namespace whyrss::shim
