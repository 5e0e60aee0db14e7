// Whose kill a group's counter has counted: when the main process's end is laid at the kernel's door, and when not.
#include "replay/kill_judgement.h"

#include <gtest/gtest.h>

#include "literal_accounts.h"

namespace whyrss::kill_judgement_test {
namespace {

constexpr int kMain = 10;

CgroupReading counted(double time_s, std::int64_t kills, bool after_end = false) {
  CgroupReading reading;
  reading.time_s = time_s;
  reading.after_end = after_end;
  reading.oom_kills = kills;
  return reading;
}

// Ended by SIGKILL at 20 s, in a group that others use too, and whose log nobody could read.
RecordingAccount killed(const std::vector<CgroupReading>& readings) {
  RecordingAccount recording;
  recording.info = literal::finished({"prog"}, 20.5);
  recording.info.exit_code.reset();
  recording.info.exit_signal = "SIGKILL";
  recording.info.cgroup.emplace().readings = readings;
  recording.processes.push_back(literal::python_process(kMain, {"prog"}));
  recording.processes[0].ended_s = 20;
  recording.processes[0].end_signal = "SIGKILL";
  return recording;
}

void add_killed(RecordingAccount& recording, int pid, double ended_s) {
  recording.processes.push_back(literal::python_process(pid, {"worker"}));
  recording.processes.back().ended_s = ended_s;
  recording.processes.back().end_signal = "SIGKILL";
}

TEST(JudgeKill, TheCounterRoseAsItEnded) {
  RecordingAccount recording = killed({counted(0, 3), counted(18, 3), counted(20, 4, true)});
  judge_kill(0, kMain, recording);
  EXPECT_TRUE(recording.info.oom_killed);
  EXPECT_TRUE(recording.info.oom_kill_probable);  // others are in the group
}

TEST(JudgeKill, TheLogNamesAChildOfAMainProcessThatWasNotRecorded) {
  RecordingAccount recording = killed({});
  recording.processes[0].pid = kMain + 1;
  recording.info.oom_kills.emplace_back().pid = kMain + 1;
  judge_kill(0, kMain, recording);
  EXPECT_FALSE(recording.info.oom_killed);
}

TEST(JudgeKill, TheCounterRoseBefore) {
  RecordingAccount recording = killed({counted(0, 3), counted(10, 4), counted(20, 4, true)});
  judge_kill(0, kMain, recording);
  EXPECT_FALSE(recording.info.oom_killed);
}

TEST(JudgeKill, TheCounterRoseLongAfter) {
  RecordingAccount recording = killed({counted(0, 3), counted(20, 3, true), counted(40, 4)});
  recording.info.duration_s = 41;
  judge_kill(0, kMain, recording);
  EXPECT_FALSE(recording.info.oom_killed);
}

TEST(JudgeKill, EndedByItselfOrByAnotherSignal) {
  RecordingAccount recording = killed({counted(0, 3), counted(20, 4, true)});
  recording.info.exit_signal = "SIGTERM";
  judge_kill(0, kMain, recording);
  EXPECT_FALSE(recording.info.oom_killed);
}

// The kernel's log has a line for each of its kills.
TEST(JudgeKill, TheLogIsReadableAndSilent) {
  RecordingAccount recording = killed({counted(0, 3), counted(20, 4, true)});
  recording.info.capabilities["kernel_log"] = "yes";
  judge_kill(0, kMain, recording);
  EXPECT_FALSE(recording.info.oom_killed);
  recording.info.capabilities["kernel_log"] = "/dev/kmsg: Operation not permitted";
  judge_kill(0, kMain, recording);
  EXPECT_TRUE(recording.info.oom_killed);
}

TEST(JudgeKill, TheLogNamesIt) {
  RecordingAccount recording = killed({counted(0, 3), counted(20, 3, true)});
  recording.info.capabilities["kernel_log"] = "yes";
  recording.info.oom_kills.emplace_back().pid = 11;
  judge_kill(0, kMain, recording);
  EXPECT_FALSE(recording.info.oom_killed);
  recording.info.oom_kills.emplace_back().pid = 10;
  judge_kill(0, kMain, recording);
  EXPECT_TRUE(recording.info.oom_killed);
  EXPECT_FALSE(recording.info.oom_kill_probable);
}

TEST(JudgeKill, AGroupOfItsOwn) {
  RecordingAccount recording = killed({counted(20, 1, true)});
  recording.info.cgroup->made_by_record = true;
  judge_kill(1, kMain, recording);
  EXPECT_TRUE(recording.info.oom_killed);
  EXPECT_FALSE(recording.info.oom_kill_probable);
}

// The disk stood still while its end was written, before that was noted or after.
TEST(JudgeKill, TheEndWasWrittenSlowly) {
  for (const double read_s : {15.0, 22.0})
    for (const bool is_ours : {false, true}) {
      RecordingAccount recording = killed({counted(10, 0), counted(read_s, 1, true), counted(40, 2)});
      recording.info.cgroup->made_by_record = is_ours;
      judge_kill(is_ours ? 1 : 0, kMain, recording);
      EXPECT_TRUE(recording.info.oom_killed) << read_s;
      EXPECT_EQ(recording.info.oom_kill_probable, !is_ours) << read_s;
    }
}

// Nobody told of the end: what rose long after has nothing to do with it.
TEST(JudgeKill, OrdinaryReadingsLongAfter) {
  RecordingAccount recording = killed({counted(0, 3), counted(18, 3), counted(40, 4)});
  judge_kill(0, kMain, recording);
  EXPECT_FALSE(recording.info.oom_killed);
  recording.info.cgroup->readings[2].time_s = 20.9;
  judge_kill(0, kMain, recording);
  EXPECT_TRUE(recording.info.oom_killed);
}

// The counter rose seconds before the kernel was through with its memory.
TEST(JudgeKill, DiedSlowlyInAGroupOfItsOwn) {
  RecordingAccount recording = killed({counted(10, 0), counted(17, 1), counted(20, 1, true)});
  judge_kill(0, kMain, recording);
  EXPECT_FALSE(recording.info.oom_killed);  // whose it was nobody knows
  recording.info.cgroup->made_by_record = true;
  judge_kill(1, kMain, recording);
  EXPECT_TRUE(recording.info.oom_killed);
  EXPECT_TRUE(recording.info.oom_kill_probable);
  recording.processes.push_back(literal::python_process(11, {"worker"}));
  judge_kill(1, kMain, recording);
  EXPECT_TRUE(recording.info.oom_killed);  // the worker lives
  recording.processes[1].ended_s = 16.9;   // nobody knows how
  judge_kill(1, kMain, recording);
  EXPECT_FALSE(recording.info.oom_killed);
  recording.processes[1].end_signal = "SIGTERM";
  judge_kill(1, kMain, recording);
  EXPECT_TRUE(recording.info.oom_killed);
}

// Its worker may have been the one that the kernel chose.
TEST(JudgeKill, AWorkerWasKilledAtTheSameTime) {
  RecordingAccount recording = killed({counted(18, 0), counted(20, 1, true)});
  recording.info.cgroup->made_by_record = true;
  add_killed(recording, 11, 19.8);
  judge_kill(1, kMain, recording);
  EXPECT_TRUE(recording.info.oom_killed);
  EXPECT_TRUE(recording.info.oom_kill_probable);
}

TEST(JudgeKill, AWorkerWasKilledBefore) {
  RecordingAccount recording = killed({counted(2, 0), counted(6, 1), counted(20, 1, true)});
  recording.info.cgroup->made_by_record = true;
  add_killed(recording, 11, 5);
  judge_kill(1, kMain, recording);
  EXPECT_FALSE(recording.info.oom_killed);
}

TEST(JudgeKill, NobodyCounted) {
  RecordingAccount recording = killed({});
  judge_kill(0, kMain, recording);
  EXPECT_FALSE(recording.info.oom_killed);
  recording.info.cgroup.reset();
  judge_kill(0, kMain, recording);
  EXPECT_FALSE(recording.info.oom_killed);
}

// Killed before anything of it was seen, in a group of its own.
TEST(JudgeKill, NoProcess) {
  RecordingAccount recording = killed({});
  recording.processes.clear();
  recording.info.cgroup->made_by_record = true;
  judge_kill(0, kMain, recording);
  EXPECT_FALSE(recording.info.oom_killed);
  judge_kill(1, kMain, recording);
  EXPECT_TRUE(recording.info.oom_killed);
}

}  // namespace
}  // namespace whyrss::kill_judgement_test
