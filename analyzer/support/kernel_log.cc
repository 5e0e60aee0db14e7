#include "support/kernel_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "support/kernel_log_clock.h"
#include "support/text.h"

namespace whyrss {

KernelLog KernelLog::open(From from) {
  KernelLog log;
  log.fd_ = Fd(::open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (log.fd_ && from == From::now) lseek(log.fd_.get(), 0, SEEK_END);
  return log;
}

bool kernel_log_has_our_pids() { return is_in_first_pid_namespace(); }

bool is_in_first_pid_namespace() {
  // PROC_PID_INIT_INO of include/linux/proc_ns.h
  return read_link("/proc/self/ns/pid") == "pid:[4026531836]";
}

std::vector<KernelLine> KernelLog::read_new() {
  std::vector<KernelLine> lines;
  std::array<char, 8192> bytes;  // each read gives one record, which is never longer
  while (fd_) {
    const ssize_t got = read(fd_.get(), bytes.data(), bytes.size());
    if (got < 0 && (errno == EPIPE || errno == EINTR)) continue;  // EPIPE: older ones were overwritten
    if (got <= 0) break;
    // "6,2364,37062293142,-;text": priority, number, time in us, flags
    std::string_view record(bytes.data(), static_cast<std::size_t>(got));
    std::string_view head = take_until(record, ';');
    take_until(head, ',');
    take_until(head, ',');
    const auto time_us = parse_number<std::int64_t>(take_until(head, ','));
    if (time_us) lines.push_back({*time_us, std::string(take_until(record, '\n'))});
  }
  if (lines.empty()) return lines;
  const std::int64_t ahead_us = kernel_log_ahead_ns() / 1000;
  for (KernelLine& line : lines) line.time_us -= ahead_us;
  return lines;
}

}  // namespace whyrss
