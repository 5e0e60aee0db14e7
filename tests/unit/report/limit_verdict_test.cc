// Verdicts on memory limits and kills: when they fire, and the nearest innocent case.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <tuple>
#include <utility>

#include "decode/oom_log.h"
#include "literal_accounts.h"
#include "procfs/oom_log.h"
#include "report/render/text.h"
#include "report/verdicts/verdict.h"
#include "report/view/build_view.h"
#include "report/view/limit_effect.h"
#include "verdicts_of.h"

namespace whyrss::limit_verdict_test {
namespace {

using literal::kMiB;

CgroupReading reading(double time_s, std::int64_t anon_mib, std::int64_t shmem_mib, std::int64_t file_mib,
                      std::int64_t hits) {
  CgroupReading result;
  result.time_s = time_s;
  result.usage_bytes = (anon_mib + shmem_mib + file_mib) * kMiB;
  result.anon_bytes = anon_mib * kMiB;
  result.shmem_bytes = shmem_mib * kMiB;
  result.file_bytes = file_mib * kMiB;
  result.limit_hits = hits;
  result.oom_kills = 0;
  result.reclaimed_bytes = hits * kMiB;
  return result;
}

// A program that holds `heap_mib` since 10 s, of a group with a limit of 128 MiB.
RecordingAccount limited(std::int64_t heap_mib, const std::vector<CgroupReading>& readings) {
  RecordingAccount recording;
  recording.info = literal::finished({"prog"}, 20);
  const StackId kept = literal::python_stack(recording.stacks, "/home/u/keep.py", 7, "fill");
  ProcessAccount process = literal::python_process(10, {"prog"});
  process.accounts = {literal::walk(1, {{Cause::heap_live, 1, kept}}),
                      literal::walk(10, {{Cause::heap_live, heap_mib, kept}})};
  process.ended_s = 20;
  recording.processes.push_back(process);
  recording.info.cgroup.emplace();
  recording.info.cgroup->version = 2;
  recording.info.cgroup->limit_bytes = recording.info.cgroup->peak_bytes = 128 * kMiB;
  recording.info.cgroup->readings = readings;
  return recording;
}

RecordingAccount killed_at_limit() {
  RecordingAccount recording = limited(118, {reading(0, 1, 0, 0, 0), reading(10, 119, 2, 3, 5)});
  recording.info.exit_code.reset();
  recording.info.exit_signal = "SIGKILL";
  recording.info.oom_killed = true;
  recording.info.cgroup->readings.back().oom_kills = 1;
  return recording;
}

const Verdict* find(const std::vector<Verdict>& verdicts, const std::string& id) {
  const auto found =
      std::find_if(verdicts.begin(), verdicts.end(), [&](const Verdict& verdict) { return verdict.id == id; });
  return found == verdicts.end() ? nullptr : &*found;
}

constexpr const char* kChosen =
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/job,task_memcg=/job/task,"
    "task=python3,pid=10,uid=0";
constexpr const char* kKilled =
    "Memory cgroup out of memory: Killed process 10 (python3) total-vm:75160kB, anon-rss:65280kB, file-rss:6512kB, "
    "shmem-rss:4kB, UID:0 pgtables:188kB oom_score_adj:0";

TEST(OomLog, BothLines) {
  const OomLine chosen = parse_oom_line(kChosen);
  EXPECT_EQ(chosen.kind, OomLine::Kind::chosen);
  EXPECT_EQ(chosen.pid, 10);
  EXPECT_TRUE(chosen.at_limit);
  EXPECT_EQ(chosen.group, "/job");
  const OomLine killed = parse_oom_line(kKilled);
  EXPECT_EQ(killed.kind, OomLine::Kind::killed);
  EXPECT_EQ(killed.pid, 10);
  EXPECT_TRUE(killed.at_limit);
  EXPECT_EQ(killed.anon_bytes, 65280 * 1024);
  EXPECT_EQ(killed.file_bytes, 6512 * 1024);
  EXPECT_EQ(killed.shmem_bytes, 4096);
  EXPECT_FALSE(parse_oom_line("Out of memory: Killed process 7 (x) total-vm:1kB").at_limit);
  EXPECT_FALSE(parse_oom_line("oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),task=x,pid=7,uid=0").at_limit);
}

TEST(OomLog, OtherLines) {
  for (const char* line :
       {"", "oom-kill:constraint=CONSTRAINT_MEMCG,pid=", "oom-kill:constraint=,pid=-4,", "Killed process x (y)",
        "Out of memory: Killed process 99999999999999999999 (x)", "eth0: link up"})
    EXPECT_EQ(parse_oom_line(line).kind, OomLine::Kind::none) << line;
  EXPECT_EQ(parse_oom_line("Killed process 5 (x) anon-rss:9223372036854775807kB").anon_bytes % 1024, 0);
}

TEST(OomLog, TwoLinesAreOneKill) {
  const auto kills =
      oom_kills({{2'000'000'000, kChosen}, {2'000'100'000, kKilled}, {2'000'200'000, "noise"}}, 1'000'000'000);
  ASSERT_EQ(kills.size(), 1U);
  EXPECT_EQ(kills[0].time_s, 1);
  EXPECT_EQ(kills[0].group, "/job");
  EXPECT_EQ(kills[0].anon_bytes, 65280 * 1024);
  EXPECT_EQ(kills[0].line, kKilled);
}

// Of cgroup v1, as Linux 6.18 writes it: the group alone, then with those below it.
std::vector<OomLogLine> group_lines_v1(std::int64_t limit_kib) {
  std::vector<OomLogLine> lines;
  for (const std::string& text :
       {fmt::format("memory: usage 131072kB, limit {}kB, failcnt 83", limit_kib),
        std::string("kmem: usage 1128kB, limit 9007199254740988kB, failcnt 0"),
        std::string("Memory cgroup stats for /job:"), std::string("cache 4096"), std::string("rss 8192"),
        std::string("rss_huge 0"), std::string("shmem 0"), std::string("hierarchical_memory_limit 134217728"),
        std::string("total_cache 42991616"), std::string("total_rss 83886080"), std::string("total_shmem 41943040"),
        std::string("[  pid  ]   uid  tgid total_vm      rss"), std::string(kChosen), std::string(kKilled)})
    lines.push_back({20'000'000'000, text});
  return lines;
}

TEST(OomLog, WhatTheGroupHeld) {
  const auto kills = oom_kills(group_lines_v1(131072), 1'000'000'000);
  ASSERT_EQ(kills.size(), 1U);
  ASSERT_TRUE(kills[0].group_reading);
  EXPECT_EQ(kills[0].group_limit_bytes, 128 * kMiB);
  EXPECT_EQ(kills[0].group_reading->time_s, 19);
  EXPECT_EQ(kills[0].group_reading->anon_bytes, 80 * kMiB);
  EXPECT_EQ(kills[0].group_reading->shmem_bytes, 40 * kMiB);
  EXPECT_EQ(kills[0].group_reading->file_bytes, kMiB);
}

// Linux 5.10 writes the figures as one record, which may be cut off.
TEST(OomLog, WhatTheGroupHeldInOneRecord) {
  const auto held = [](const char* figures) {
    return oom_kills({{1, "memory: usage 131072kB, limit 131072kB, failcnt 83"}, {1, figures}, {1, kChosen}}, 1).at(0);
  };
  const OomKill kill = held("anon 83886080\\x0afile 42991616\\x0akernel_stack 49152\\x0ashmem 41943040\\x0afile_ma");
  ASSERT_TRUE(kill.group_reading);
  EXPECT_EQ(kill.group_reading->anon_bytes, 80 * kMiB);
  EXPECT_EQ(kill.group_reading->shmem_bytes, 40 * kMiB);
  for (const char* figures : {"anon 83886080\\x0afile 4299161", "anon -5\\x0ashmem 4", "shmem 4\\x0aanon", ""})
    EXPECT_FALSE(held(figures).group_reading) << figures;
}

TEST(OomLog, FiguresOfAnotherKill) {
  std::vector<OomLogLine> lines = group_lines_v1(131072);
  lines.push_back(
      {21'000'000'000,
       "oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/other,task_memcg=/other,task=python3,pid=11,uid=0"});
  const auto kills = oom_kills(lines, 1'000'000'000);
  ASSERT_EQ(kills.size(), 2U);
  EXPECT_FALSE(kills[1].group_reading);
}

// The last reading is of a moment before: shared memory, which no walk has, took the place of file cache since.
TEST(LimitVerdict, WhatTheGroupHeldAtTheKill) {
  RecordingAccount recording = killed_at_limit();
  recording.info.cgroup->made_by_record = true;
  recording.info.cgroup->readings.back() = reading(18.9, 78, 2, 47, 5);
  recording.processes[0].accounts = {literal::walk(18.9, {{Cause::heap_live, 24}})};
  recording.info.oom_kills = oom_kills(group_lines_v1(131072), 1'000'000'000);
  const Verdict verdict = verdicts_of(recording).front();
  EXPECT_EQ(verdict.bytes, 120 * kMiB);
  EXPECT_NE(verdict.headline.find("held most by 40 MiB shared memory (in no snapshot of a process); 56 MiB of it came "
                                  "after the last snapshot"),
            std::string::npos)
      << verdict.headline;
  EXPECT_NE(verdict.why.find("80 MiB anonymous memory, 40 MiB shared memory, 1.0 MiB file cache"), std::string::npos)
      << verdict.why;
  recording.info.oom_kills = oom_kills(group_lines_v1(262144), 1'000'000'000);  // of a group around it
  EXPECT_EQ(verdicts_of(recording).front().bytes, 80 * kMiB);
}

// A limit of 128 MiB.
TEST(LimitVerdict, FilesAreReadAgainAndAgain) {
  RecordingAccount recording =
      limited(118, {reading(0, 1, 0, 0, 0), reading(10, 119, 2, 3, 5), reading(14, 120, 2, 4, 9)});
  auto& readings = recording.info.cgroup->readings;
  const auto rereads = [&](std::int64_t first, std::int64_t second, std::int64_t third) {
    readings[0].refaulted_bytes = first * kMiB;
    readings[1].refaulted_bytes = second * kMiB;
    readings[2].refaulted_bytes = third * kMiB;
    return verdicts_of(recording);
  };
  EXPECT_EQ(find(rereads(7, 7, 7 + 511), "limit-rereading"), nullptr);
  const auto verdicts = rereads(7, 8, 7 + 1024);
  const Verdict* verdict = find(verdicts, "limit-rereading");
  ASSERT_NE(verdict, nullptr);
  EXPECT_EQ(
      verdict->headline,
      "1024 MiB of files were read again after the kernel had taken them back: 8 times the memory limit of 128 MiB, "
      "from 10.0 s to 14.0 s");
  EXPECT_NE(verdict->why.find("It read 256 MiB/s. At 14.0 s 6.0 MiB were left for files; most of the rest was 118 MiB "
                              "live heap (keep.py:7 in fill)."),
            std::string::npos)
      << verdict->why;
  EXPECT_EQ(verdict->bytes, 1024 * kMiB);
  recording.info.oom_killed = true;  // it may end so
  EXPECT_NE(find(rereads(7, 8, 7 + 1024), "limit-rereading"), nullptr);
}

TEST(LimitVerdict, OomKilled) {
  const RecordingAccount recording = killed_at_limit();
  const auto verdicts = verdicts_of(recording);
  EXPECT_EQ(verdicts.front().id, "oom-killed");  // before all else
  EXPECT_EQ(verdicts.front().severity, Severity::problem);
  EXPECT_EQ(verdicts.front().pid, 10);
  EXPECT_EQ(verdicts.front().headline,
            "killed by the kernel at the memory limit of 128 MiB, held most by 118 MiB live heap (keep.py:7 in fill)");
  EXPECT_NE(verdicts.front().why.find("119 MiB anonymous memory, 2.0 MiB shared memory, 3.0 MiB file cache"),
            std::string::npos);
  EXPECT_NE(verdicts.front().why.find("From 0.000 s to 10.0 s the group grew by 120 MiB"), std::string::npos)
      << verdicts.front().why;
  EXPECT_EQ(verdicts.front().evidence["held_by"][0]["bytes"], 118 * kMiB);
  EXPECT_EQ(verdicts.front().evidence["before"]["reclaimable_bytes"], 3 * kMiB);
  for (const char* id : {"near-limit", "killed", "limit-reclaimed"}) EXPECT_EQ(find(verdicts, id), nullptr) << id;
}

// What rests has the pace of the time in which it grew, and none since.
TEST(LimitVerdict, TheTimeInWhichTheGroupGrew) {
  CgroupAccount group;
  const auto trend = [&](std::initializer_list<std::pair<double, std::int64_t>> held, double until_s = 10) {
    group.readings.clear();
    for (const auto& [time_s, mib] : held) group.readings.push_back(reading(time_s, mib, 0, 0, 0));
    const HeldTrend found = held_trend(group, until_s);
    return std::tuple(found.from_s, found.to_s, found.bytes / kMiB);
  };
  EXPECT_EQ(trend({{0, 1}, {1, 101}, {2, 201}, {3, 301}}), std::tuple(0, 3, 300));  // also the first and last step
  EXPECT_EQ(trend({{0, 1}, {1, 2}, {2, 101}, {3, 300}, {5, 301}, {8, 301}}), std::tuple(1, 3, 298));
  EXPECT_EQ(trend({{0, 1}, {1, 400}, {2, 1}, {3, 301}, {4, 300}}), std::tuple(2, 3, 300));    // a peak that came back
  EXPECT_EQ(trend({{0, 1}, {39, 200}, {40, 201}, {90, 301}}, 100), std::tuple(40, 90, 100));  // the last minute
  EXPECT_EQ(trend({{0, 301}, {1, 300}}), std::tuple(0, 0, 0));
}

TEST(LimitVerdict, OomKilledByTheKernelsOwnWords) {
  RecordingAccount recording = killed_at_limit();
  recording.info.oom_kills = oom_kills({{1'000'000'000 + 19'000'000'000, kKilled}}, 1'000'000'000);
  const Verdict verdict = verdicts_of(recording).front();
  EXPECT_NE(verdict.why.find(kKilled), std::string::npos);
  EXPECT_EQ(verdict.evidence["killed"][0]["anon_bytes"], 65280 * 1024);
  recording.info.oom_kills[0].at_limit = false;
  EXPECT_NE(verdicts_of(recording).front().headline.find("because the machine had no memory left"), std::string::npos);
}

// The main process went on: its exit says nothing.
TEST(LimitVerdict, OomKilledWorkerStandsFirst) {
  RecordingAccount recording = killed_at_limit();
  recording.info.exit_signal.reset();
  recording.info.oom_killed = false;
  ProcessAccount worker = literal::python_process(11, {"worker"});
  worker.accounts = {literal::walk(15, {{Cause::heap_live, 9}})};
  worker.ended_s = 19;
  recording.processes.push_back(worker);
  OomKill kill;
  kill.pid = 11;
  kill.time_s = 18.9;
  kill.at_limit = true;
  recording.info.oom_kills = {kill};
  const View view = build_view(recording, whole_life(recording));
  const auto verdicts = find_verdicts(view);
  EXPECT_EQ(verdicts.front().headline.find("pid 11 was killed by the kernel at the memory limit of 128 MiB"), 0U);
  EXPECT_EQ(render_short(view, verdicts, {}).find("worker (pid 11)"), 0U);
}

TEST(LimitVerdict, TooSmallToStart) {
  RecordingAccount recording = killed_at_limit();
  recording.processes[0].traced = false;
  recording.processes[0].accounts.clear();
  recording.processes[0].ended_s = 0.02;
  EXPECT_EQ(verdicts_of(recording).front().headline,
            "killed by the kernel at the memory limit of 128 MiB, 0.020 s after its start: too small even to start it");
}

// A static program that takes all at once: nothing of it was seen, but the kernel tells what it held.
TEST(LimitVerdict, BeganAndTookAllAtOnce) {
  RecordingAccount recording = killed_at_limit();
  recording.processes[0].traced = false;
  recording.processes[0].accounts.clear();
  recording.processes[0].ended_s = 0.07;
  recording.info.oom_kills = oom_kills({{1'060'000'000, kKilled}}, 1'000'000'000);
  EXPECT_EQ(verdicts_of(recording).front().headline,
            "killed by the kernel at the memory limit of 128 MiB; 70 MiB of it came after the last snapshot");
}

// Next to nothing of the limit did not fill it.
TEST(LimitVerdict, HeldByNobodyWhoWasSeen) {
  RecordingAccount recording = killed_at_limit();
  recording.processes[0].accounts = {literal::walk(0.01, {{Cause::anonymous, 2}})};
  EXPECT_EQ(verdicts_of(recording).front().headline, "killed by the kernel at the memory limit of 128 MiB");
}

TEST(LimitVerdict, TooSmallToBeSeen) {
  RecordingAccount recording = killed_at_limit();
  recording.processes.clear();
  EXPECT_EQ(verdicts_of(recording).front().headline,
            "killed by the kernel at the memory limit of 128 MiB before the first snapshot: too small even to "
            "start it");
  EXPECT_NE(verdicts_of(recording).front().why.find("; its log was not readable"), std::string::npos);
  recording.info.capabilities["kernel_log"] = "yes";
  EXPECT_EQ(verdicts_of(recording).front().why.find("readable"), std::string::npos);
}

TEST(LimitVerdict, AnotherKillIsNotOutOfMemory) {
  RecordingAccount recording = killed_at_limit();
  recording.info.oom_killed = false;
  recording.info.cgroup->made_by_record = true;
  recording.info.cgroup->readings = {reading(0, 1, 0, 0, 0), reading(10, 60, 0, 3, 0)};
  recording.info.cgroup->peak_bytes = 63 * kMiB;
  const auto verdicts = verdicts_of(recording);
  EXPECT_EQ(find(verdicts, "oom-killed"), nullptr);
  ASSERT_NE(find(verdicts, "killed"), nullptr);
  EXPECT_EQ(find(verdicts, "killed")->headline,
            "killed by SIGKILL, which a process sent: it was not the kernel for lack of memory (limit 128 MiB, up "
            "to 63 MiB seen); held most by 118 MiB live heap (keep.py:7 in fill)");
  EXPECT_NE(
      find(verdicts, "killed")
          ->why.find("At 10.0 s the group held 60 MiB anonymous memory, 3.0 MiB file cache: "
                     "only the file cache could have been taken back. From 0.000 s to 10.0 s the group grew by 59 "
                     "MiB. What grew most in its 20.0 s: 118 MiB live heap (keep.py:7 in fill)."),
      std::string::npos)
      << find(verdicts, "killed")->why;
  recording.info.cgroup->made_by_record = false;
  const auto shared = verdicts_of(recording);
  EXPECT_NE(find(shared, "killed")
                ->why.find("At 10.0 s the group held 60 MiB anonymous memory, 3.0 MiB file cache, all programs in it "
                           "together: only the file cache could have been taken back. From 0.000 s to 10.0 s the group "
                           "grew by 59 MiB, all programs in it together. What grew most of this job in its 20.0 s: "
                           "118 MiB live heap (keep.py:7 in fill)."),
            std::string::npos)
      << find(shared, "killed")->why;
  EXPECT_EQ(find(verdicts, "killed")->evidence["grown_in_last_minute"][0]["bytes"], 118 * kMiB);
}

// The largest reading is less than what the kernel noted.
TEST(LimitVerdict, PeakOfAKilledJob) {
  RecordingAccount recording = killed_at_limit();
  recording.info.oom_killed = false;
  CgroupAccount& group = *recording.info.cgroup;
  group.peak_bytes = 125 * kMiB;
  auto headline = [&] { return find(verdicts_of(recording), "killed")->headline; };
  EXPECT_NE(headline().find("(limit 128 MiB, up to 125 MiB seen)"), std::string::npos) << headline();
  group.readings.back().peak_bytes = 125 * kMiB;
  EXPECT_NE(headline().find("(limit 128 MiB, at most 125 MiB used)"), std::string::npos) << headline();
}

// Those were processes that came and went.
TEST(LimitVerdict, MoreThanTheLimitWasNotHeld) {
  RecordingAccount recording = killed_at_limit();
  recording.info.oom_killed = false;
  recording.processes[0].accounts = {literal::walk(10, {{Cause::anonymous, 129}})};
  const std::string over = find(verdicts_of(recording), "killed")->headline;
  EXPECT_EQ(over.find("held most by"), std::string::npos) << over;
  recording.processes[0].accounts = {literal::walk(10, {{Cause::anonymous, 2}})};
  const std::string little = find(verdicts_of(recording), "killed")->headline;
  EXPECT_NE(little.find("held most by 2.0 MiB"), std::string::npos) << little;
}

// The main process, which is large, is gone seconds after its small workers.
TEST(LimitVerdict, KilledTogether) {
  RecordingAccount recording = killed_at_limit();
  recording.info.oom_killed = false;
  ProcessAccount worker = literal::python_process(11, {"worker"});
  worker.accounts = {literal::walk(15, {{Cause::anonymous, 9}})};
  worker.born_s = 14;
  worker.ended_s = 17;
  recording.processes.push_back(worker);
  const auto held = [&] { return find(verdicts_of(recording), "killed")->evidence["held_by"].size(); };
  EXPECT_EQ(held(), 1U);  // it ended by itself
  recording.processes[1].end_signal = "SIGKILL";
  EXPECT_EQ(held(), 2U);
  recording.processes[1].ended_s = 14.9;
  EXPECT_EQ(held(), 1U);
}

// What a worker had that was done shortly before is gone.
TEST(LimitVerdict, WhoLeftByItselfHoldsNothing) {
  RecordingAccount recording = killed_at_limit();
  recording.info.oom_killed = false;
  ProcessAccount worker = literal::python_process(11, {"worker"});
  worker.accounts = {literal::walk(15, {{Cause::anonymous, 9}})};
  worker.born_s = 14;
  worker.ended_s = 19.8;
  recording.processes.push_back(worker);
  const auto held = [&] { return find(verdicts_of(recording), "killed")->evidence["held_by"].size(); };
  EXPECT_EQ(held(), 2U);  // how it ended is not known
  recording.processes[1].teardown_s = 19.78;
  EXPECT_EQ(held(), 1U);
  recording.processes[1].end_signal = "SIGKILL";
  EXPECT_EQ(held(), 2U);
}

TEST(LimitVerdict, TheKernelKilledSomebodyAtAnotherTime) {
  RecordingAccount recording = killed_at_limit();
  recording.info.oom_killed = false;
  const Verdict verdict = *find(verdicts_of(recording), "killed");
  EXPECT_EQ(
      verdict.headline.find("killed by SIGKILL: the sender is not known, the kernel killed a process of its group for "
                            "lack of memory, but at another time"),
      0U)
      << verdict.headline;
  EXPECT_NE(verdict.why.find("or the kernel, for lack of memory."), std::string::npos) << verdict.why;
  recording.info.capabilities["kernel_log"] = "yes";
  const Verdict cleared = *find(verdicts_of(recording), "killed");
  EXPECT_EQ(cleared.headline.find("killed by SIGKILL, which a process sent"), 0U) << cleared.headline;
  EXPECT_NE(cleared.why.find("a timeout, or a batch system"), std::string::npos) << cleared.why;
}

TEST(LimitVerdict, NobodyCouldTellWhoKilledIt) {
  RecordingAccount recording = killed_at_limit();
  recording.info.oom_killed = false;
  recording.info.cgroup.reset();
  const Verdict* verdict = nullptr;
  auto verdicts = verdicts_of(recording);
  verdict = find(verdicts, "killed");
  ASSERT_NE(verdict, nullptr);
  EXPECT_EQ(
      verdict->headline.find("killed by SIGKILL: the sender is not known, neither the kernel's log nor a counter"), 0U)
      << verdict->headline;
  EXPECT_NE(verdict->why.find("or the kernel, for lack of memory."), std::string::npos) << verdict->why;
  recording.info.capabilities["kernel_log"] = "yes";
  verdicts = verdicts_of(recording);
  EXPECT_EQ(find(verdicts, "killed")->headline.find("killed by SIGKILL, which a process sent"), 0U);
}

// A whole group was killed, the collector in it.
TEST(LimitVerdict, EndedUnseen) {
  RecordingAccount recording = killed_at_limit();
  recording.info.oom_killed = false;
  recording.info.exit_signal.reset();
  recording.info.complete = false;
  recording.processes[0].ended_s.reset();
  EXPECT_EQ(find(verdicts_of(recording), "killed"), nullptr);
  recording.info.end_unseen = true;
  const auto verdicts = verdicts_of(recording);
  const Verdict* verdict = find(verdicts, "killed");
  ASSERT_NE(verdict, nullptr);
  EXPECT_EQ(verdict->headline.find("ended unseen, and so did whyrss's collector"), 0U) << verdict->headline;
  EXPECT_NE(verdict->headline.find("(limit 128 MiB, up to 128 MiB seen); held most by 118 MiB live heap (keep.py:7"),
            std::string::npos)
      << verdict->headline;
  EXPECT_FALSE(verdict->evidence["end_seen"]);
  EXPECT_NE(verdict->why.find("the kernel's log was not readable. It may also be that the collector alone died"),
            std::string::npos)
      << verdict->why;
  recording.info.capabilities["kernel_log"] = "yes";
  const Verdict logged = *find(verdicts_of(recording), "killed");
  EXPECT_NE(logged.why.find("no line of the kernel's log names it."), std::string::npos) << logged.why;
}

TEST(LimitVerdict, ProbablyKilled) {
  RecordingAccount recording = killed_at_limit();
  recording.info.oom_kill_probable = true;
  const Verdict verdict = verdicts_of(recording).front();
  EXPECT_EQ(verdict.headline.find("probably killed by the kernel at the memory limit of 128 MiB"), 0U);
  EXPECT_NE(verdict.why.find("That may have been another process of the group"), std::string::npos);
  EXPECT_FALSE(verdict.evidence["certain"]);
}

// Those that had ended before hold nothing any more.
TEST(LimitVerdict, HeldByThoseWhoLived) {
  RecordingAccount recording = killed_at_limit();
  ProcessAccount worker = literal::python_process(11, {"worker"});
  worker.accounts = {literal::walk(15, {{Cause::anonymous, 127}})};
  worker.born_s = 14;
  worker.ended_s = 19.5;
  recording.processes.push_back(worker);
  EXPECT_EQ(verdicts_of(recording).front().evidence["held_by"][0]["bytes"], 118 * kMiB);
  recording.processes.back().ended_s = 19.9;
  EXPECT_EQ(verdicts_of(recording).front().evidence["held_by"][0]["bytes"], 127 * kMiB);
}

// Imports are one figure, whatever their causes and lines: what else holds most is named.
TEST(LimitVerdict, ImportsStandBesideWhatElseHoldsMost) {
  RecordingAccount recording = killed_at_limit();
  StackTable& stacks = recording.stacks;
  const auto frame = [&](const char* file) {
    return stacks.intern(Frame{.kind = FrameKind::python, .function = "f", .file = file, .line = 3});
  };
  const StackId imported = stacks.intern(std::vector{frame("/usr/lib/python3/dist-packages/torch/__init__.py"),
                                                     frame("<frozen importlib._bootstrap>"), frame("/home/u/keep.py")});
  const StackId kept = recording.processes.front().accounts.front().slices[0].site.stack;
  const auto headline_with = [&](std::int64_t kept_mib) {
    recording.processes.front().accounts.back() = literal::walk(
        10, {{Cause::heap_live, 40, imported}, {Cause::file_cow, 30, imported}, {Cause::heap_live, kept_mib, kept}});
    return verdicts_of(recording).front().headline;
  };
  EXPECT_TRUE(
      headline_with(48).ends_with("held most by 48 MiB live heap (keep.py:7 in fill), beside 70 MiB by imports"))
      << headline_with(48);
  EXPECT_TRUE(headline_with(71).ends_with("held most by 71 MiB live heap (keep.py:7 in fill)")) << headline_with(71);
  EXPECT_TRUE(headline_with(2).ends_with("held most by 70 MiB by imports")) << headline_with(2);
}

// The log's clock and that of the readings differ: of those around the kill the fullest is from before it.
TEST(LimitVerdict, TheReadingBeforeAKillIsTheFullestAroundIt) {
  RecordingAccount recording = killed_at_limit();
  recording.info.cgroup->readings = {reading(10, 119, 2, 3, 5), reading(19.6, 90, 37, 0, 6),
                                     reading(20.1, 40, 20, 0, 6)};
  const auto before = [&] { return verdicts_of(recording).front().evidence["before"]["time_s"].get<double>(); };
  EXPECT_EQ(before(), 19.6);
  recording.info.cgroup->readings[1].time_s = 18;
  EXPECT_EQ(before(), 20.1) << "too early to be from the time of the kill";
}

// Nothing was read of the group in the minute before.
TEST(LimitVerdict, ReadingsOfAGroupThatAreOld) {
  RecordingAccount recording = killed_at_limit();
  recording.info.cgroup->made_by_record = true;
  recording.info.cgroup->readings = {reading(10, 60, 58, 0, 5)};
  recording.processes.front().ended_s = recording.info.duration_s = 100;
  EXPECT_EQ(verdicts_of(recording).front().evidence["before"]["time_s"], 10.0);
}

// Files in memory are read less often than the group, which says how much it has of them.
TEST(LimitVerdict, SharedMemoryOfTheGroupThatNoProcessMaps) {
  RecordingAccount recording = killed_at_limit();
  recording.info.capabilities["unmapped_shmem"] = "yes";
  ProcessAccount& process = recording.processes.front();
  process.accounts.back() = literal::walk(10, {{Cause::heap_live, 50, process.accounts[0].slices[0].site.stack},
                                               {Cause::shared_memory, 8, kEmptyStack, "/dev/shm/mapped"}});
  process.unmapped = {{.time_s = 12, .bytes = 20 * kMiB}};
  recording.info.cgroup->readings = {reading(0, 1, 0, 0, 0), reading(19.6, 52, 70, 0, 5)};
  EXPECT_TRUE(verdicts_of(recording).front().headline.ends_with("held most by 50 MiB live heap (keep.py:7 in fill)"));
  recording.info.cgroup->made_by_record = true;  // else the shared memory may be of others
  EXPECT_TRUE(
      verdicts_of(recording).front().headline.ends_with("held most by 62 MiB shared memory (mapped by no process)"))
      << verdicts_of(recording).front().headline;
}

TEST(LimitVerdict, ALineWithinItsErrorOfZeroIsNotNamed) {
  RecordingAccount recording = killed_at_limit();
  Slice& held = recording.processes.front().accounts.back().slices.open().front();
  held.variance = 4.0 * kMiB * kMiB;
  EXPECT_NE(verdicts_of(recording).front().headline.find("held most by 118 MiB ± 2 % live heap (keep.py:7 in fill)"),
            std::string::npos);
  held.variance = 100.0 * 100 * kMiB * kMiB;
  EXPECT_TRUE(verdicts_of(recording).front().headline.ends_with("118 MiB ± 85 % live heap"))
      << verdicts_of(recording).front().headline;
}

TEST(LimitVerdict, EndedByItselfWasNotKilled) {
  const auto verdicts = verdicts_of(limited(10, {reading(0, 1, 0, 0, 0), reading(10, 10, 0, 0, 0)}));
  for (const char* id : {"oom-killed", "killed", "near-limit", "limit-reclaimed"})
    EXPECT_EQ(find(verdicts, id), nullptr) << id;
}

TEST(LimitVerdict, NearLimit) {
  const auto verdicts = verdicts_of(limited(100, {reading(0, 1, 0, 0, 0), reading(10, 101, 20, 3, 0)}));
  const Verdict* verdict = find(verdicts, "near-limit");
  ASSERT_NE(verdict, nullptr);
  EXPECT_EQ(verdict->severity, Severity::warning);
  EXPECT_EQ(
      verdict->headline,
      "121 MiB of the memory limit of 128 MiB were held by what the kernel cannot take back, most by 100 MiB live "
      "heap (keep.py:7 in fill)");
  EXPECT_NE(verdict->why.find("the limit is met 0.6 s later"), std::string::npos) << verdict->why;
}

// Of 101 MiB anonymous memory the kernel could take 40 at once, and would before it kills.
TEST(LimitVerdict, WhatWasGivenUpIsNotHeld) {
  RecordingAccount recording = limited(60, {reading(0, 1, 0, 0, 0), reading(10, 101, 20, 3, 0)});
  recording.processes[0].accounts.back() = literal::walk(10, {{Cause::heap_live, 60}, {Cause::lazy_free, 40}});
  EXPECT_EQ(find(verdicts_of(recording), "near-limit"), nullptr);
  recording.processes[0].accounts.back() = literal::walk(10, {{Cause::heap_live, 97}, {Cause::lazy_free, 3}});
  const auto verdicts = verdicts_of(recording);
  const Verdict* verdict = find(verdicts, "near-limit");
  ASSERT_NE(verdict, nullptr);
  EXPECT_EQ(verdict->bytes, 118 * kMiB);
  EXPECT_EQ(verdict->evidence["held_by"][0]["cause"], "heap_live");

  RecordingAccount killed = killed_at_limit();
  killed.processes[0].accounts.back() = literal::walk(10, {{Cause::heap_live, 80}, {Cause::lazy_free, 38}});
  const auto on_kill = verdicts_of(killed);
  const Verdict* kill = find(on_kill, "oom-killed");
  ASSERT_NE(kill, nullptr);
  EXPECT_EQ(kill->evidence["before"]["lazy_free_bytes"], 38 * kMiB);
  EXPECT_EQ(kill->evidence["before"]["reclaimable_bytes"], 41 * kMiB);
  EXPECT_EQ(kill->evidence["held_by"].size(), 1U);
  EXPECT_NE(kill->why.find("only the file cache and 38 MiB of the anonymous memory, given up with MADV_FREE, could "
                           "have been taken back"),
            std::string::npos)
      << kill->why;
}

// Page cache fills every group up to its limit sooner or later.
TEST(LimitVerdict, PageCacheAtTheLimitIsNotNearIt) {
  const auto verdicts = verdicts_of(limited(10, {reading(0, 1, 0, 0, 0), reading(10, 10, 0, 118, 500)}));
  EXPECT_EQ(find(verdicts, "near-limit"), nullptr);
  const Verdict* verdict = find(verdicts, "limit-reclaimed");
  ASSERT_NE(verdict, nullptr);
  EXPECT_EQ(verdict->severity, Severity::ok);
  EXPECT_EQ(
      verdict->headline,
      "runs under a memory limit of 128 MiB: the limit was hit 500 times, the kernel took back 500 MiB, no process "
      "was killed");
}

TEST(LimitVerdict, NoLimitNoWord) {
  RecordingAccount recording = limited(100, {reading(0, 1, 0, 0, 0), reading(10, 121, 0, 3, 0)});
  recording.info.cgroup->limit_bytes.reset();
  EXPECT_EQ(find(verdicts_of(recording), "near-limit"), nullptr);
}

}  // namespace
}  // namespace whyrss::limit_verdict_test
