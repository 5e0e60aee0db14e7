// Memory cgroups: v1 and v2 as trees of files, their frames in a recording, what a limit did.
#include "collect/cgroup/cgroup.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "decode/cgroup_frames.h"
#include "file_tree.h"
#include "report/view/limit_effect.h"

namespace whyrss::cgroup_test {
namespace {

constexpr std::int64_t kMiB = 1024 * 1024;

// Files as the kernel shows them.
class CgroupTree : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) const { tree_.write(path, text); }
  FileTree tree_;
  const std::string& mount_ = tree_.path();
};

TEST_F(CgroupTree, Version2) {
  write("cgroup.controllers", "memory\n");
  write("job/memory.max", "104857600\n");
  write("job/memory.oom.group", "1\n");
  write("job/memory.current", "73400320\n");
  write("job/memory.peak", "104857600\n");
  write("job/memory.high", "max\n");
  write("job/memory.swap.current", "0\n");
  write("job/memory.stat",
        "anon 41943040\nfile 31457280\nkernel 1048576\nshmem 10485760\nfile_mapped 5242880\nfile_dirty 4096\n"
        "pgsteal 512\nworkingset_refault_file 256\n");
  write("job/memory.events", "low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\noom_group_kill 1\n");
  write("job/task/memory.max", "max\n");
  write("job/task/memory.current", "1\n");
  const auto group = find_cgroup("0::/job/task\n", mount_);
  ASSERT_TRUE(group.has_value());
  EXPECT_EQ(group->version, 2);
  EXPECT_EQ(group->path, mount_ + "/job");  // the limit stands above
  EXPECT_EQ(group->own_path, mount_ + "/job/task");
  EXPECT_EQ(group->limit_bytes, 100 * kMiB);
  EXPECT_TRUE(group->kills_all);
  EXPECT_EQ(read_figures(*group), (CgroupFigures{{"usage_bytes", 70 * kMiB},
                                                 {"peak_bytes", 100 * kMiB},
                                                 {"anon_bytes", 40 * kMiB},
                                                 {"file_bytes", 20 * kMiB},
                                                 {"shmem_bytes", 10 * kMiB},
                                                 {"kernel_bytes", kMiB},
                                                 {"mapped_file_bytes", 5 * kMiB},
                                                 {"dirty_bytes", 4096},
                                                 {"swap_bytes", 0},
                                                 {"reclaimed_bytes", 2 * kMiB},
                                                 {"refaulted_bytes", kMiB},
                                                 {"limit_hits", 7},
                                                 {"high_hits", 0},
                                                 {"oom_kills", 1},
                                                 {"group_kills", 1}}));
  EXPECT_EQ(read_usage(*group), 70 * kMiB);
}

// A group above may be nearer to a larger limit, by what others use.
TEST_F(CgroupTree, HeadroomIsTheLeastOnTheWayUp) {
  write("cgroup.controllers", "memory\n");
  write("job/memory.max", "209715200\n");
  write("job/memory.current", "199229440\n");
  write("job/memory.stat", "anon 1\ninactive_file 1048576\nactive_file 2097152\n");
  write("job/task/memory.max", "104857600\n");
  write("job/task/memory.current", "10485760\n");
  const auto group = find_cgroup("0::/job/task\n", mount_);
  ASSERT_TRUE(group.has_value());
  EXPECT_EQ(group->limit_bytes, 100 * kMiB);
  const auto headroom = read_headroom(*group);
  ASSERT_TRUE(headroom.has_value());
  EXPECT_EQ(headroom->bytes, 10 * kMiB);
  EXPECT_EQ(headroom->group.path, mount_ + "/job");
  EXPECT_EQ(with_cache_bytes(*headroom), 13 * kMiB);
}

TEST_F(CgroupTree, HeadroomOfVersion1AndWithoutALimit) {
  write("memory/memory.usage_in_bytes", "1\n");
  write("memory/job/memory.limit_in_bytes", "104857600\n");
  write("memory/job/memory.usage_in_bytes", "73400320\n");
  write("memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 1048576\ntotal_active_file 0\n");
  const auto group = find_cgroup("4:memory:/job\n", mount_);
  ASSERT_TRUE(group.has_value());
  const auto headroom = read_headroom(*group);
  ASSERT_TRUE(headroom.has_value());
  EXPECT_EQ(headroom->bytes, 30 * kMiB);
  EXPECT_EQ(with_cache_bytes(*headroom), 31 * kMiB);
  EXPECT_FALSE(read_headroom(*find_cgroup("4:memory:/\n", mount_)).has_value());
}

// v1 counts a kill in the victim's own group alone, also where the limit stands above.
TEST_F(CgroupTree, Version1) {
  write("memory/memory.usage_in_bytes", "1\n");
  write("memory/job/memory.limit_in_bytes", "104857600\n");
  write("memory/job/memory.usage_in_bytes", "73400320\n");
  write("memory/job/memory.failcnt", "2\n");
  write("memory/job/memory.memsw.failcnt", "7\n");
  write("memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
  write("memory/job/memory.stat", "rss 1\ntotal_cache 31457280\ntotal_rss 41943040\ntotal_shmem 10485760\n");
  write("memory/job/task/memory.limit_in_bytes", "9223372036854771712\n");
  write("memory/job/task/memory.usage_in_bytes", "1\n");
  write("memory/job/task/memory.oom_control", "oom_kill 2\n");
  const auto group = find_cgroup("8:pids:/\n4:memory:/job/task\n0::/\n", mount_);
  ASSERT_TRUE(group.has_value());
  EXPECT_EQ(group->version, 1);
  EXPECT_EQ(group->limit_bytes, 100 * kMiB);
  const CgroupFigures figures = read_figures(*group);
  EXPECT_EQ(figures.at("anon_bytes"), 40 * kMiB);
  EXPECT_EQ(figures.at("file_bytes"), 20 * kMiB);
  EXPECT_EQ(figures.at("limit_hits"), 9);
  EXPECT_EQ(figures.at("oom_kills"), 3);
  EXPECT_FALSE(figures.contains("peak_bytes"));
}

TEST_F(CgroupTree, NoHierarchy) { EXPECT_FALSE(find_cgroup("0::/job\n", mount_).has_value()); }

// Of a container its own group is the mount.
TEST_F(CgroupTree, PathOfTheHost) {
  write("cgroup.controllers", "memory\n");
  write("memory.max", "4096\n");
  write("memory.current", "1\n");
  const auto group = find_cgroup("0::/../elsewhere\n", mount_);
  ASSERT_TRUE(group.has_value());
  EXPECT_EQ(group->own_path, mount_);
  EXPECT_EQ(group->limit_bytes, 4096);
}

TEST(CgroupFrame, OfAnOlderVersion) {
  std::optional<CgroupAccount> group;
  read_cgroup_frame({{"version", 1}, {"path", "/g"}, {"limit_bytes", nullptr}, {"usage_bytes", 5}, {"oom_kills", 0}}, 1,
                    group);
  read_cgroup_frame({{"version", 1}, {"path", "/g"}, {"limit_bytes", 9}, {"peak_bytes", 7}, {"oom_kills", 1}}, 2,
                    group);
  EXPECT_EQ(group->limit_bytes, 9);
  EXPECT_EQ(group->peak_bytes, 7);
  EXPECT_EQ(group->readings[1].oom_kills, 1);
  EXPECT_FALSE(group->readings[0].anon_bytes.has_value());
}

TEST(CgroupFrame, NonsenseIsLeftOut) {
  std::optional<CgroupAccount> group;
  read_cgroup_frame({{"version", "x"}, {"path", 3}, {"limit_bytes", -1}, {"anon_bytes", "y"}, {"oom_kills", -4}}, 1,
                    group);
  ASSERT_TRUE(group.has_value());
  EXPECT_EQ(group->version, 0);
  EXPECT_FALSE(group->limit_bytes.has_value());
  EXPECT_FALSE(group->readings[0].oom_kills.has_value());
}

CgroupAccount group_at(const std::string& path, std::optional<std::int64_t> limit_bytes, double read_s) {
  CgroupAccount group;
  group.path = path;
  group.limit_bytes = limit_bytes;
  group.readings.emplace_back().time_s = read_s;
  return group;
}

TEST(CgroupFrame, OfTwoGroupsTheSmallerLimitSpeaks) {
  std::optional<CgroupAccount> main;
  merge_cgroup(group_at("/a", 9, 1), main);
  merge_cgroup(group_at("/b", {}, 1), main);
  EXPECT_EQ(main->path, "/a");
  merge_cgroup(group_at("/c", 5, 2), main);
  EXPECT_EQ(main->path, "/c");
  merge_cgroup(group_at("/c", 5, 1), main);
  ASSERT_EQ(main->readings.size(), 2U);
  EXPECT_EQ(main->readings[0].time_s, 1);
}

TEST(CgroupFrame, APeakFromBeforeTheRecordingIsNone) {
  const auto read = [](std::int64_t first_peak, std::int64_t last_peak) {
    std::optional<CgroupAccount> group;
    read_cgroup_frame({{"path", "/g"}, {"usage_bytes", 5}, {"peak_bytes", first_peak}}, 1, group);
    read_cgroup_frame({{"path", "/g"}, {"usage_bytes", 8}, {"peak_bytes", last_peak}}, 2, group);
    return *group;
  };
  CgroupAccount group = read(90, 90);
  settle_peak(group);
  EXPECT_EQ(group.peak_bytes, 8);
  group = read(7, 9);
  settle_peak(group);
  EXPECT_EQ(group.peak_bytes, 9);
  group = read(90, 90);
  group.made_by_record = true;
  settle_peak(group);
  EXPECT_EQ(group.peak_bytes, 90);
}

CgroupReading reading(double time_s, std::int64_t anon_mib, std::int64_t file_mib, std::int64_t hits) {
  CgroupReading result;
  result.time_s = time_s;
  result.usage_bytes = (anon_mib + file_mib) * kMiB;
  result.anon_bytes = anon_mib * kMiB;
  result.file_bytes = file_mib * kMiB;
  result.limit_hits = hits;
  result.oom_kills = 0;
  return result;
}

TEST(LimitEffect, WhatWasTakenBack) {
  RecordingInfo info;
  info.cgroup = group_at("/g", 128 * kMiB, 0);
  info.cgroup->peak_bytes = 128 * kMiB;
  info.cgroup->readings = {reading(0, 5, 0, 3), reading(1, 9, 119, 50), reading(2, 8, 120, 103)};
  for (std::size_t i = 0; i < 3; ++i)
    info.cgroup->readings[i].reclaimed_bytes = static_cast<std::int64_t>(i) * 70 * kMiB;
  const auto lines = limit_effect_lines(info);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0],
            "memory cgroup: limit 128 MiB, peak 128 MiB; the limit was hit 100 times, the kernel took back 140 MiB, no "
            "process was killed");
  EXPECT_EQ(lines[1], "in the group when it was fullest, at 1.0 s: 9.0 MiB anonymous memory, 119 MiB file cache");
}

// Of v1 the kernel counts pages that leave a group by folios of unknown size: what came back, or was seen to go,
// counts.
TEST(LimitEffect, Version1DoesNotCount) {
  RecordingInfo info;
  info.cgroup = group_at("/g", 128 * kMiB, 0);
  info.cgroup->version = 1;
  info.cgroup->peak_bytes = 128 * kMiB;
  info.cgroup->readings = {reading(0, 5, 0, 0), reading(1, 5, 120, 1)};
  EXPECT_EQ(
      limit_effect_lines(info)[0],
      "memory cgroup: limit 128 MiB, peak 128 MiB; the limit was hit once, how much the kernel took back is not known "
      "(cgroup v1), no process was killed");
  info.cgroup->version = 2;  // nor do all kernels there
  EXPECT_NE(limit_effect_lines(info)[0].find("took back is not known, no process"), std::string::npos);
  info.cgroup->seen_reclaimed_bytes = 60 * kMiB;
  EXPECT_EQ(limit_effect(*info.cgroup).reclaimed_at_least, 60 * kMiB);
  info.cgroup->readings[0].refaulted_bytes = kMiB;
  info.cgroup->readings[1].refaulted_bytes = 80 * kMiB;
  info.cgroup->readings[1].oom_kills = 1;
  EXPECT_EQ(limit_effect_lines(info)[0],
            "memory cgroup: limit 128 MiB, peak 128 MiB; the limit was hit once, the kernel took back at least 79 MiB "
            "of file cache, 1 process was killed");
  info.cgroup->readings[0].limit_hits = info.cgroup->readings[1].limit_hits = {};
  EXPECT_TRUE(limit_effect(*info.cgroup).was_reached);
}

TEST(LimitEffect, NeverReached) {
  RecordingInfo info;
  info.cgroup = group_at("/g", 128 * kMiB, 0);
  info.cgroup->peak_bytes = 9 * kMiB;
  info.cgroup->readings = {reading(0, 5, 0, 3), reading(1, 9, 0, 3)};
  EXPECT_EQ(limit_effect_lines(info)[0], "memory cgroup: limit 128 MiB, peak 9.0 MiB; the limit was never reached");
  EXPECT_TRUE(limit_effect_lines(RecordingInfo{}).empty());
  info.cgroup->limit_bytes.reset();
  EXPECT_TRUE(limit_effect_lines(info).empty());
}

}  // namespace
}  // namespace whyrss::cgroup_test
