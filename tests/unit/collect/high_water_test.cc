// Peaks of RSS that come and go between two polls are known from VmHWM.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>

#include "collect/loop/process_follow.h"
#include "collect/read/process_presence.h"
#include "file_tree.h"
#include "recording/frame_file.h"
#include "stopped_child.h"
#include "support/clock.h"

namespace whyrss::high_water_test {
namespace {

using testing_support::wait_until_stopped;

constexpr std::size_t kPulseBytes = 32UL << 20;

// Stops, has a pulse or none, stops again.
pid_t start_child(bool pulses) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  raise(SIGSTOP);
  if (pulses) {
    void* memory = mmap(nullptr, kPulseBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) _exit(9);
    std::memset(memory, 1, kPulseBytes);
    munmap(memory, kPulseBytes);
  }
  raise(SIGSTOP);
  _exit(0);
}

// What its ended frame says, 0: nothing.
std::int64_t reported_kib(bool pulses) {
  const pid_t pid = start_child(pulses);
  FileTree tree;
  WriteFaults faults(tree.path());
  FollowContext context;
  context.directory = tree.path();
  context.host = "node";
  context.faults = &faults;
  const ProcessKey key{.pid = static_cast<std::uint32_t>(pid), .start_ticks = start_ticks_of(pid).value_or(0)};
  ProcessFollow process(context, key, pid);
  bool exec = false;
  wait_until_stopped(pid);
  const std::int64_t begin_ns = monotonic_ns();
  EXPECT_TRUE(process.poll(exec));
  EXPECT_GE(process.poll_point().time_ns, begin_ns);
  kill(pid, SIGCONT);
  wait_until_stopped(pid);
  EXPECT_TRUE(process.poll(exec));
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  process.write_ended("gone", std::nullopt, "SIGKILL", {});
  const auto file = read_frame_file(tree.path() + "/node." + std::to_string(key.pid) + "." +
                                    std::to_string(key.start_ticks) + "/pages.zst");
  EXPECT_TRUE(file.ok());
  for (const RawFrame& frame : file->frames)
    if (frame.kind == trace::FrameKind::ended)
      return nlohmann::json::parse(reinterpret_cast<const char*>(frame.payload.data()),
                                   reinterpret_cast<const char*>(frame.payload.data() + frame.payload.size()))
          .value("high_water_kilos", std::int64_t{0});
  return -1;
}

TEST(HighWater, IsReadWhenAPeakMayHavePassed) {
  EXPECT_GE(reported_kib(true), static_cast<std::int64_t>(kPulseBytes / 1024));
  EXPECT_EQ(reported_kib(false), 0);
}

}  // namespace
}  // namespace whyrss::high_water_test
