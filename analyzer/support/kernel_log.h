// The kernel's log, as /dev/kmsg gives it. Needs CAP_SYSLOG where kernel.dmesg_restrict is set.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "support/file.h"

namespace whyrss {

struct KernelLine {
  std::int64_t time_us = 0;  // CLOCK_MONOTONIC, as far as kernel_log_clock.h knows
  std::string text;
};

class KernelLog {
 public:
  enum class From { begin, now };
  // Closed when it may not be read: then there never are any lines.
  static KernelLog open(From from);
  [[nodiscard]] bool is_open() const { return static_cast<bool>(fd_); }

  // What came since the last call. Lines that were overwritten meanwhile are missing.
  std::vector<KernelLine> read_new();

 private:
  Fd fd_;
};

// Not so in a container, as a rule: when process 1 of its namespace ends, the kernel kills all others there.
bool is_in_first_pid_namespace();

// Whether the numbers of processes in the log are those that we see: not so in a container's own namespace.
bool kernel_log_has_our_pids();

}  // namespace whyrss
