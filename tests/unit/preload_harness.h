// Runs a program with the library preloaded and a pool of the test's own, without a collector, and
// hands out what was written into the pool.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "shim/trace/pool.h"
#include "shim/trace/trace_format.h"

namespace whyrss::testing {

struct Event {
  std::uint32_t pid = 0, tid = 0;
  std::vector<std::byte> bytes;

  [[nodiscard]] trace::RecordHeader header() const { return as<trace::RecordHeader>(); }
  [[nodiscard]] trace::RecordKind kind() const { return header().kind; }
  template <class Record>
  [[nodiscard]] Record as() const {
    Record record{};
    std::memcpy(&record, bytes.data(), std::min(sizeof(Record), bytes.size()));
    return record;
  }
  // Of a TextRecord.
  [[nodiscard]] std::string text() const {
    const auto record = as<trace::TextRecord>();
    return {reinterpret_cast<const char*>(bytes.data()) + sizeof(record), record.text_bytes};
  }
};

struct Outcome {
  int status = -1;  // exit code, or 128 + signal
  std::string output;
  std::vector<Event> events;  // by time
  std::uint64_t dropped = 0;
  std::vector<trace::ProcessSlot*> slots;

  [[nodiscard]] std::vector<Event> of(trace::RecordKind kind) const {
    std::vector<Event> found;
    for (const Event& event : events)
      if (event.kind() == kind) found.push_back(event);
    return found;
  }
  // Between the marks "begin" and "end".
  [[nodiscard]] std::vector<Event> marked() const {
    std::vector<Event> found;
    bool inside = false;
    for (const Event& event : events) {
      if (event.kind() == trace::RecordKind::mark)
        inside = event.text() == "begin";
      else if (inside)
        found.push_back(event);
    }
    return found;
  }
};

class Preloaded {
 public:
  Preloaded() {
    std::string name = "/dev/shm/whyrss-test-XXXXXX";
    const int fd = mkstemp(name.data());
    path_ = name;
    size_ = trace::pool_bytes(kChunks, kSlots);
    if (fd < 0 || ftruncate(fd, static_cast<off_t>(size_)) != 0) std::abort();
    mapping_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (mapping_ == MAP_FAILED) std::abort();
    pool_ = trace::format_pool(mapping_, kChunks, kSlots, {.high = 0x0123456789abcdef, .low = 0xfedcba9876543210});
  }
  Preloaded(const Preloaded&) = delete;
  Preloaded& operator=(const Preloaded&) = delete;
  ~Preloaded() {
    munmap(mapping_, size_);
    unlink(path_.c_str());
  }

  [[nodiscard]] trace::PoolView pool() const { return pool_; }
  [[nodiscard]] std::string session() const { return "0123456789abcdeffedcba9876543210:" + path_; }

  // No small block is sampled, unless `extra` says otherwise: more NAME=VALUE settings, NAME= takes one away.
  // `behind` is an allocator preloaded behind the library; a subreaper adopts the orphans below it, as PID 1 does.
  Outcome run(const std::vector<std::string>& command, const std::string& behind = "",
              const std::vector<std::string>& extra = {}, bool subreaper = false) {
    int output[2];
    if (pipe(output) != 0) std::abort();
    const pid_t child = fork();
    if (child == 0) {
      dup2(output[1], 1);
      dup2(output[1], 2);
      close(output[0]);
      close(output[1]);
      for (int fd = 3; fd < 1024; ++fd) close(fd);
      setenv("LD_PRELOAD", (std::string(WHYRSS_SHIM_FILE) + (behind.empty() ? "" : ":" + behind)).c_str(), 1);
      setenv("WHYRSS_SESSION", session().c_str(), 1);
      unsetenv("WHYRSS_OUTPUT");
      setenv("WHYRSS_OPTS", "sample_bytes=1048576G", 1);
      for (const std::string& setting : extra) {
        const std::size_t equals = setting.find('=');
        const std::string name = setting.substr(0, equals);
        if (equals + 1 == setting.size())
          unsetenv(name.c_str());
        else
          setenv(name.c_str(), setting.substr(equals + 1).c_str(), 1);
      }
      if (subreaper) prctl(PR_SET_CHILD_SUBREAPER, 1);
      std::vector<char*> arguments;
      for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
      arguments.push_back(nullptr);
      execvp(arguments[0], arguments.data());
      _exit(127);
    }
    close(output[1]);
    Outcome outcome;
    char buffer[4096];
    for (ssize_t got = 0; (got = read(output[0], buffer, sizeof(buffer))) > 0;)
      outcome.output.append(buffer, static_cast<std::size_t>(got));
    close(output[0]);
    int status = 0;
    waitpid(child, &status, 0);
    outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    collect(outcome);
    return outcome;
  }

  // As if a collector were there: one that does nothing.
  void pretend_reader() { pool_.header->reader_pid.store(static_cast<std::uint32_t>(getpid())); }

 private:
  static constexpr std::uint32_t kChunks = 1024;
  static constexpr std::uint32_t kSlots = 64;

  void collect(Outcome& outcome) {
    std::map<std::uint64_t, std::vector<Event>> by_lease;
    for (std::uint32_t index = 0; index < kChunks; ++index) {
      const trace::Segment segment = trace::next_segment(pool_, index);
      std::size_t at = 0;
      while (at + sizeof(trace::RecordHeader) <= segment.bytes.size()) {
        trace::RecordHeader header{};
        std::memcpy(&header, segment.bytes.data() + at, sizeof(header));
        ASSERT_GE(header.size_bytes, sizeof(header));
        ASSERT_EQ(header.size_bytes % 8, 0U);
        ASSERT_LE(at + header.size_bytes, segment.bytes.size());
        const auto record = segment.bytes.subspan(at, header.size_bytes);
        by_lease[segment.lease].push_back(
            {.pid = segment.pid, .tid = segment.tid, .bytes = {record.begin(), record.end()}});
        at += header.size_bytes;
      }
      EXPECT_EQ(at, segment.bytes.size());
    }
    for (const auto& [lease, events] : by_lease)
      outcome.events.insert(outcome.events.end(), events.begin(), events.end());
    std::stable_sort(outcome.events.begin(), outcome.events.end(), [](const Event& left, const Event& right) {
      return left.header().time_ns < right.header().time_ns;
    });
    outcome.dropped = pool_.header->dropped_records.load();
    for (std::uint32_t index = 0; index < kSlots; ++index)
      if (pool_.slots[index].state.load() == trace::SlotState::live) outcome.slots.push_back(&pool_.slots[index]);
  }

  std::string path_;
  std::size_t size_ = 0;
  void* mapping_ = nullptr;
  trace::PoolView pool_{};
};

}  // namespace whyrss::testing
