// A living process as `prove` shows it, before and after.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "collect/read/file_reclaim.h"
#include "procfs/process_stat.h"
#include "support/result.h"

namespace whyrss {

// What tells that a process does something.
struct Activity {
  ProcessStat stat;                         // state X: there is no such process
  std::uint64_t run_ns = 0, run_count = 0;  // on a CPU, and how often put there, over its threads
};
Activity activity_of(pid_t pid);

struct ProcessSnapshot {
  std::int64_t rss_bytes = 0;
  std::int64_t file_bytes = 0;     // page cache of mapped files
  std::int64_t private_bytes = 0;  // anonymous memory and private copies of file pages
  std::int64_t copied_bytes = 0;   // of them private copies of file pages
  std::int64_t swap_bytes = 0;
  std::int64_t dirty_bytes = 0;   // of file_bytes: not written to the file yet
  std::int64_t locked_bytes = 0;  // of file_bytes: in mappings that mlock holds
  std::vector<FileMapping> files;
  std::vector<std::string> command;
};

// Its command line; empty: a kernel thread, or it has ended.
std::vector<std::string> command_of(pid_t pid);

// Fails when it has ended, or may not be walked.
Result<ProcessSnapshot> take_snapshot(pid_t pid);

// Bytes of page cache by file.
std::map<std::string, std::int64_t> bytes_by_file(const std::vector<FileMapping>& files);

// Processes other than `pid` that map the same file, as far as their maps may be read.
std::vector<pid_t> other_mappers(const FileMapping& file, pid_t pid);

// Of this machine, as far as /proc shows them.
std::vector<pid_t> all_processes();

// The process and its living descendants, parents first.
std::vector<pid_t> tree_of(pid_t root);

}  // namespace whyrss
