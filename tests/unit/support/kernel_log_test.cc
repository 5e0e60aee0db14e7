// Lines of the kernel's log have the time of CLOCK_MONOTONIC, whatever the log's own clock says.
#include "support/kernel_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "support/clock.h"
#include "support/file.h"

namespace whyrss::kernel_log_test {
namespace {

constexpr std::int64_t kErrorUs = 1000;

bool may_open_perf_events() { return geteuid() == 0 && read_file("/proc/sys/kernel/perf_event_paranoid"); }

TEST(KernelLog, LinesHaveTheTimeOfTheMonotonicClock) {
  const Fd log(open("/dev/kmsg", O_WRONLY | O_CLOEXEC));
  KernelLog lines = KernelLog::open(KernelLog::From::now);
  if (!log || !lines.is_open() || !may_open_perf_events()) GTEST_SKIP() << "not ours to write and read";
  const std::string text = "a test of reading this log, process " + std::to_string(getpid());
  const std::int64_t begin_us = monotonic_ns() / 1000;
  const std::string line_of_text = text + "\n";
  if (write(log.get(), line_of_text.data(), line_of_text.size()) < 0) GTEST_SKIP() << "may not be written";
  const std::int64_t end_us = monotonic_ns() / 1000;
  bool found = false;
  for (const KernelLine& line : lines.read_new()) {
    if (line.text != text) continue;
    found = true;
    EXPECT_GE(line.time_us, begin_us - kErrorUs);
    EXPECT_LE(line.time_us, end_us + kErrorUs);
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace whyrss::kernel_log_test
