// Who is there when: as asking each process says it.
#include "report/view/process_times.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "literal_accounts.h"

namespace whyrss::process_times_test {
namespace {

using Pids = std::set<int>;

// Most of them short and one after the other, some from the beginning to the end, some of which nobody knows when they
// ended, or that were never walked.
RecordingAccount many_processes(std::size_t count) {
  std::mt19937 chance(7);
  const auto part = [&] { return std::uniform_real_distribution<double>(0, 1)(chance); };
  RecordingAccount recording;
  for (std::size_t i = 0; i < count; ++i) {
    ProcessAccount process = literal::python_process(static_cast<int>(100 + i), {"p"});
    process.parent = static_cast<int>(100 + i / 4);
    process.born_s = 100 * part();
    const double lasts_s = i % 10 == 0 ? 100 * part() : part();
    if (i % 7 != 0) process.ended_s = process.born_s + lasts_s;
    if (i % 3 == 0) process.left_s = process.born_s + lasts_s / 2;
    if (i % 5 != 0) {
      process.accounts.push_back(literal::walk(process.born_s + lasts_s / 3 - 0.005, {{Cause::heap_live, 1}}));
      process.accounts.push_back(literal::walk(process.born_s + lasts_s * (0.5 + part()), {{Cause::heap_live, 1}}));
    }
    if (i % 4 == 0) process.polls.push_back({process.born_s + lasts_s + 0.3 * part(), 4096, 0});
    recording.processes.push_back(std::move(process));
  }
  return recording;
}

TEST(ProcessTimes, AllThatAreThereAreNear_AndFewOthers) {
  const RecordingAccount recording = many_processes(2000);
  const ProcessTimes times(recording);
  std::size_t most = 0;
  for (double time_s = -1; time_s < 203; time_s += 0.37) {
    Pids near, there, near_there;
    for (const ProcessAccount* process : times.near(time_s)) {
      near.insert(process->pid);
      if (is_there(*process, time_s)) near_there.insert(process->pid);
    }
    for (const ProcessAccount& process : recording.processes)
      if (is_there(process, time_s)) there.insert(process.pid);
    EXPECT_EQ(near_there, there) << time_s;
    if (time_s < 100) most = std::max(most, near.size() - there.size());
  }
  EXPECT_LT(most, 100U);
}

TEST(ProcessTimes, WhoLeavesBetweenTwoTimes) {
  const RecordingAccount recording = many_processes(300);
  const ProcessTimes times(recording);
  for (const ProcessAccount& process : recording.processes)
    for (const double from_s : {process.born_s, process.ended_s.value_or(5)}) {
      const double to_s = from_s + 0.2;
      const bool expected = std::ranges::any_of(recording.processes, [&](const ProcessAccount& other) {
        const auto left_s = other.left_s ? other.left_s : other.ended_s;
        return &other != &process && left_s && *left_s >= from_s && *left_s < to_s;
      });
      EXPECT_EQ(times.others_left(process, from_s, to_s), expected) << process.pid;
    }
}

TEST(ProcessTimes, ChildrenThatWereFirstWalkedAfterATime) {
  RecordingAccount recording = many_processes(300);
  for (ProcessAccount& process : recording.processes) process.parent = 100 + process.pid % 2;
  const ProcessTimes times(recording);
  for (double time_s = 0; time_s < 100; time_s += 1.7)
    for (const double state_s : {time_s - 1, time_s, time_s + 1}) {
      Pids expected, found;
      for (const ProcessAccount& child : recording.processes)
        if (child.parent == 101 && child.born_s <= time_s && !child.accounts.empty() &&
            child.accounts.front().time_s > state_s)
          expected.insert(child.pid);
      times.children(101, time_s, state_s, [&](const ProcessAccount& child) { found.insert(child.pid); });
      EXPECT_EQ(found, expected) << time_s;
    }
}

TEST(ProcessTimes, OfNobody) {
  const RecordingAccount recording;
  EXPECT_TRUE(ProcessTimes(recording).near(3).empty());
}

}  // namespace
}  // namespace whyrss::process_times_test
