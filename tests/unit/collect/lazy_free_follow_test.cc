// When the collector asks the kernel what is left of pages given up with MADV_FREE.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <vector>

#include "collect/loop/process_follow.h"
#include "collect/read/backing.h"
#include "collect/read/process_presence.h"
#include "file_tree.h"
#include "recording/frame_file.h"
#include "stopped_child.h"

namespace whyrss::lazy_free_follow_test {
namespace {

using testing_support::wait_until_stopped;
using trace::FrameKind;

// Gives up 4 MiB and stops; takes them away and stops again.
pid_t start_child() {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  constexpr std::size_t kBytes = 4 * 1024 * 1024;
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) _exit(9);
  std::memset(memory, 1, kBytes);
  madvise(memory, kBytes, MADV_FREE);
  raise(SIGSTOP);
  madvise(memory, kBytes, MADV_DONTNEED);
  raise(SIGSTOP);
  _exit(0);
}

TEST(LazyFreeFollow, AsksFromTheFirstCallUntilNothingIsLeft) {
  FollowContext context;
  context.methods = probe_walk_methods();
  if (!context.methods.pagemap) GTEST_SKIP() << "no pagemap: walks are of smaps alone";
  const pid_t pid = start_child();
  ASSERT_GT(pid, 0);
  wait_until_stopped(pid);
  FileTree tree;
  BackingResolver resolver;
  context.directory = tree.path();
  context.host = "node";
  context.resolver = &resolver;
  const ProcessKey key{.pid = static_cast<std::uint32_t>(pid), .start_ticks = start_ticks_of(pid).value_or(0)};
  WriteFaults faults(tree.path());
  context.faults = &faults;
  ProcessFollow process(context, key, pid);
  const auto walk = [&] { process.walk(trace::WalkTrigger::request, 0); };

  walk();  // nobody has told of a call
  EXPECT_FALSE(process.may_have_lazy_free());
  process.expect_lazy_free();
  walk();
  EXPECT_TRUE(process.may_have_lazy_free());
  kill(pid, SIGCONT);
  wait_until_stopped(pid);
  walk();
  EXPECT_FALSE(process.may_have_lazy_free());
  walk();
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);

  const auto file = read_frame_file(tree.path() + "/node." + std::to_string(key.pid) + "." +
                                    std::to_string(key.start_ticks) + "/pages.zst");
  ASSERT_TRUE(file.ok()) << file.error();
  std::vector<FrameKind> kinds;
  for (const RawFrame& frame : file->frames) kinds.push_back(frame.kind);
  EXPECT_EQ(kinds,
            (std::vector{FrameKind::walk, FrameKind::walk, FrameKind::lazy_free, FrameKind::walk, FrameKind::walk}));
}

}  // namespace
}  // namespace whyrss::lazy_free_follow_test
