// Living processes as the kernel alone shows them: causes without code lines.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "report/wording/table.h"

namespace whyrss {

// Reads processes again and again, and remembers what each had before. Not for several threads.
class KernelWatch {
 public:
  // These and their descendants, also those that come later; none: the largest of this machine.
  explicit KernelWatch(std::vector<pid_t> roots);
  KernelWatch(const KernelWatch&) = delete;
  KernelWatch& operator=(const KernelWatch&) = delete;
  ~KernelWatch();

  // Reads all of them once. False: none is there (any more).
  bool read();

  // What was read last: a table, and sentences on what could not be read. Sizes in MiB.
  [[nodiscard]] Table table() const;
  [[nodiscard]] std::vector<std::string> notes() const;
  [[nodiscard]] std::size_t process_count() const { return shown_.size(); }
  [[nodiscard]] std::size_t ended_count() const { return ended_; }

 private:
  struct Process;
  struct Walker;
  void read_process(pid_t pid, Process& process);
  [[nodiscard]] std::vector<pid_t> chosen() const;

  std::vector<pid_t> roots_;
  std::unique_ptr<Walker> walker_;
  std::map<pid_t, Process> processes_;
  std::vector<pid_t> shown_;  // in the order of the rows
  std::size_t ended_ = 0;
};

}  // namespace whyrss
