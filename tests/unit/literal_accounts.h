// Recordings as literals, for the tests of what is made of them.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "model/account.h"

namespace whyrss::literal {

inline constexpr std::int64_t kMiB = 1024 * 1024;

inline StackId python_stack(StackTable& stacks, const std::string& file, int line, const std::string& function,
                            const std::string& native_module = "/usr/bin/python3.11") {
  Frame native;
  native.module = stacks.intern(Module{native_module, "id"});
  native.address = 0x1000;
  Frame python{.kind = FrameKind::python, .function = function, .file = file, .line = line};
  return stacks.intern({stacks.intern(native), stacks.intern(python)});
}

inline StackId native_stack(StackTable& stacks, const std::vector<std::pair<std::string, std::string>>& frames) {
  std::vector<FrameId> ids;
  for (const auto& [function, module] : frames) {
    Frame frame;
    frame.function = function;
    frame.module = stacks.intern(Module{module, "id"});
    frame.address = 0x1000 + ids.size();
    ids.push_back(stacks.intern(frame));
  }
  return stacks.intern(ids);
}

struct Part {
  Cause cause;
  std::int64_t mib;
  StackId stack = kEmptyStack;
  std::string mapping{};
  std::int64_t exclusive_mib = -1;  // -1: all of it
};

inline Account walk(double time_s, const std::vector<Part>& parts) {
  Account account;
  account.time_s = time_s;
  account.has_liveness = true;
  for (const Part& part : parts) {
    const std::int64_t exclusive = part.exclusive_mib < 0 ? part.mib : part.exclusive_mib;
    account.slices.open().push_back({{part.cause, part.stack, part.mapping}, part.mib * kMiB, exclusive * kMiB});
    account.rss_bytes += part.mib * kMiB;
  }
  std::ranges::stable_sort(account.slices.open(), [](const Slice& a, const Slice& b) { return a.bytes > b.bytes; });
  return account;
}

inline KernelTotals totals(double time_s, std::int64_t rss_mib, std::int64_t pss_mib, std::int64_t uss_mib) {
  return {.time_s = time_s,
          .rss_bytes = rss_mib * kMiB,
          .pss_bytes = pss_mib * kMiB,
          .uss_bytes = uss_mib * kMiB,
          .swap_bytes = 0,
          .hugetlb_bytes = {},
          .page_table_bytes = kMiB};
}

inline ProcessAccount python_process(int pid, std::vector<std::string> command) {
  ProcessAccount process;
  process.pid = pid;
  process.traced = true;
  process.command = std::move(command);
  process.exe = "/usr/bin/python3.11";
  process.allocator = "glibc";
  process.python = "3.11.2";
  return process;
}

inline RecordingInfo finished(const std::vector<std::string>& command, double duration_s) {
  RecordingInfo info;
  info.path = "/tmp/whyrss-python-4711";
  info.host = "node1";
  info.command = command;
  info.started = "2026-01-02T03:04:05.000006Z";
  info.duration_s = duration_s;
  info.complete = true;
  info.exit_code = 0;
  info.capabilities = {{"touch", "none"}, {"write_tracking", "false"}, {"page_scan", "true"}};
  return info;
}

// A program that maps a file, keeps objects and forks two workers that read them.
inline RecordingAccount quickstart() {
  RecordingAccount recording;
  const std::vector<std::string> command{"/usr/bin/python", "quickstart.py"};
  recording.info = finished(command, 9.9);
  StackTable& stacks = recording.stacks;
  const StackId mapped = python_stack(stacks, "/home/u/quickstart.py", 18, "load");
  const StackId kept = python_stack(stacks, "/home/u/quickstart.py", 24, "load");
  const StackId imported = python_stack(stacks, "/usr/lib/python3.11/json/decoder.py", 3, "<module>");
  const std::string big = "/tmp/big.txt", libc = "/usr/lib/x86_64-linux-gnu/libc.so.6";

  ProcessAccount main = python_process(4711, command);
  main.born_s = 0.01;
  main.ended_s = 9.81;
  main.high_water_bytes = 660 * kMiB;
  const std::vector<Part> start{{Cause::file_cache, 5, kEmptyStack, libc, 1}, {Cause::heap_live, 2, imported}};
  main.accounts.push_back(walk(0.2, start));
  main.accounts.push_back(walk(5, {{Cause::file_cache, 5, kEmptyStack, libc, 1},
                                   {Cause::file_cache, 512, mapped, big},
                                   {Cause::heap_live, 3, imported},
                                   {Cause::heap_live, 130, kept}}));
  main.accounts.push_back(walk(9.5, {{Cause::file_cache, 5, kEmptyStack, libc, 1},
                                     {Cause::file_cache, 512, mapped, big},
                                     {Cause::heap_live, 3, imported},
                                     {Cause::heap_live, 127, kept},
                                     {Cause::stack, 1, kEmptyStack, "[stack]"},
                                     {Cause::whyrss, 3, kEmptyStack, "[anon: whyrss]"}}));
  main.totals = {totals(0.2, 7, 4, 3), totals(9.5, 651, 600, 590)};
  recording.processes.push_back(main);

  for (const int pid : {4712, 4713}) {
    ProcessAccount worker = python_process(pid, command);
    worker.parent = 4711;
    worker.born_by_fork = true;
    worker.born_s = 7;
    worker.ended_s = 9.4;
    worker.accounts.push_back(walk(7.1, {{Cause::fork_shared, 130, kept, "", 0}}));
    worker.accounts.push_back(walk(9.3, {{Cause::fork_shared, 6, kept, "", 0},
                                         {Cause::fork_cow, 124, kept},
                                         {Cause::file_cache, 4, kEmptyStack, libc, 0}}));
    worker.copies = {{7.2, kept, kEmptyStack, 4 * kMiB}, {9.3, kept, kEmptyStack, 120 * kMiB}};
    worker.totals = {totals(9.3, 134, 127, 124)};
    recording.processes.push_back(worker);
  }
  recording.phases = {{"load", 0.1, 5.5}, {"work", 5.5, 9.6}};
  return recording;
}

// A program that did nothing much.
inline RecordingAccount quiet() {
  RecordingAccount recording;
  recording.info = finished({"/usr/bin/python", "-c", "pass"}, 0.5);
  ProcessAccount main = python_process(77, recording.info.command);
  main.ended_s = 0.5;
  main.accounts.push_back(walk(0.1, {{Cause::file_cache, 4}, {Cause::heap_live, 2}}));
  main.accounts.push_back(walk(0.4, {{Cause::file_cache, 4}, {Cause::heap_live, 3}}));
  recording.processes.push_back(main);
  return recording;
}

}  // namespace whyrss::literal
