// Groups for --memory-max, in trees of files that stand for cgroup file systems, and one real one where that may be.
#include "collect/cgroup/memory_group.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "collect/loop/process_follow.h"
#include "collect/read/process_presence.h"
#include "file_tree.h"
#include "support/file.h"

namespace whyrss::memory_group_test {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMiB = 1024 * 1024;

class MemoryGroupTree : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) const { tree_.write(path, text); }
  [[nodiscard]] std::string read(const std::string& path) const { return tree_.read(path); }
  // What confine() will make, with the files that a kernel would put there.
  [[nodiscard]] std::string expect_group(const std::string& parent, const std::vector<std::string>& files) const {
    std::string name = (parent.empty() ? parent : parent + "/") + "whyrss-" + std::to_string(getpid()) + "-" +
                       std::to_string(*start_ticks_of(getpid()));
    for (const std::string& file : files) write(name + "/" + file, "");
    return name;
  }
  FileTree tree_;
  GroupPlace place_{.mount = tree_.path(), .membership = {}, .busctl = "/nowhere/busctl"};
};

TEST_F(MemoryGroupTree, Version1) {
  write("memory/memory.usage_in_bytes", "1");
  write("memory/job/memory.usage_in_bytes", "1");
  place_.membership = "4:memory:/job\n0::/\n";
  const std::string made = expect_group("memory/job", {"memory.limit_in_bytes", "memory.swappiness", "cgroup.procs"});
  const auto group = confine(4711, 64 * kMiB, place_);
  ASSERT_TRUE(group.ok()) << group.error();
  EXPECT_EQ(group->path, place_.mount + "/" + made);
  EXPECT_TRUE(group->is_ours);
  EXPECT_EQ(read(made + "/memory.limit_in_bytes"), "67108864");
  EXPECT_EQ(read(made + "/memory.swappiness"), "0");
  EXPECT_EQ(read(made + "/cgroup.procs"), "4711");
}

TEST_F(MemoryGroupTree, ALimitIsAtLeastAPage) {
  write("memory/memory.usage_in_bytes", "1");
  write("memory/job/memory.usage_in_bytes", "1");
  place_.membership = "4:memory:/job\n0::/\n";
  const std::string made = expect_group("memory/job", {"memory.limit_in_bytes", "memory.swappiness", "cgroup.procs"});
  const auto group = confine(4711, 1, place_);
  ASSERT_TRUE(group.ok()) << group.error();
  EXPECT_EQ(read(made + "/memory.limit_in_bytes"), "4096");
}

// Groups with processes may not pass the controller on to their children: the new one stands beside its own.
TEST_F(MemoryGroupTree, Version2Beside) {
  write("cgroup.controllers", "memory");
  write("cgroup.subtree_control", "memory\n");
  write("user/cgroup.subtree_control", "cpu memory\n");
  write("user/cgroup.events", "");
  write("user/session/cgroup.events", "");
  write("user/session/cgroup.subtree_control", "");
  write("user/session/memory.current", "1");
  place_.membership = "0::/user/session\n";
  const std::string made = expect_group("user", {"memory.max", "memory.swap.max", "cgroup.procs"});
  const auto group = confine(4711, 64 * kMiB, place_);
  ASSERT_TRUE(group.ok()) << group.error();
  EXPECT_EQ(group->path, place_.mount + "/" + made);
  EXPECT_EQ(read(made + "/memory.max"), "67108864");
  EXPECT_EQ(read(made + "/memory.swap.max"), "0");
  EXPECT_EQ(read("user/session/cgroup.subtree_control"), "");
}

// The root may: it is asked to, where it does not yet.
TEST_F(MemoryGroupTree, Version2Root) {
  write("cgroup.controllers", "cpu memory");
  write("cgroup.subtree_control", "");
  place_.membership = "0::/\n";
  const std::string made = expect_group("", {"memory.max", "cgroup.procs"});
  const auto group = confine(4711, 64 * kMiB, place_);
  ASSERT_TRUE(group.ok()) << group.error();
  EXPECT_EQ(read("cgroup.subtree_control"), "+memory");
  EXPECT_EQ(read(made + "/memory.max"), "67108864");
}

TEST_F(MemoryGroupTree, SaysWhatWasTriedAndWhatItNeeds) {
  place_.membership = "0::/user\n";
  const auto group = confine(4711, kMiB, place_);
  ASSERT_FALSE(group.ok());
  for (const char* part : {"no memory cgroup at", "systemd", "/nowhere/busctl",
                           "needs root, a cgroup that is delegated to you, or a session of systemd"})
    EXPECT_NE(group.error().find(part), std::string::npos) << group.error();
}

// A directory with files in it is not removed by rmdir, as one with processes is not in a cgroup file system.
TEST_F(MemoryGroupTree, GroupsThatAKilledRunLeftAreRemoved) {
  write("memory/memory.usage_in_bytes", "1");
  place_.membership = "4:memory:/\n";
  const fs::path parent = fs::path(place_.mount) / "memory";
  const fs::path stale = parent / "whyrss-999999999-5", foreign = parent / "whyrss-other",
                 living = parent / ("whyrss-1-" + std::to_string(start_ticks_of(1).value_or(0)));
  for (const fs::path& path : {stale, foreign, living}) fs::create_directories(path);
  static_cast<void>(expect_group("memory", {"memory.limit_in_bytes", "cgroup.procs"}));
  ASSERT_TRUE(confine(4711, kMiB, place_).ok());
  EXPECT_FALSE(fs::exists(stale));
  EXPECT_TRUE(fs::exists(foreign));
  EXPECT_TRUE(fs::exists(living));
}

// A stand-in for busctl that keeps what it was asked, and refuses.
TEST_F(MemoryGroupTree, SystemdIsAskedLast) {
  const std::string words = place_.mount + "/words";
  place_.busctl = place_.mount + "/busctl";
  write("busctl", "#!/bin/sh\necho \"$@\" >> " + words + "\necho no such manager >&2\nexit 1\n");
  ASSERT_EQ(chmod(place_.busctl.c_str(), 0755), 0);
  place_.membership = "0::/user\n";
  const auto group = confine(4711, kMiB, place_);
  ASSERT_FALSE(group.ok());
  EXPECT_NE(group.error().find("systemd's user manager: no such manager; systemd's system manager: no such manager"),
            std::string::npos)
      << group.error();
  const std::string asked = read("words");
  EXPECT_NE(
      asked.find("StartTransientUnit ssa(sv)a(sa(sv)) whyrss-4711.scope fail 4 PIDs au 1 4711 MemoryMax t 1048576 "
                 "MemorySwapMax t 0 CollectMode s inactive-or-failed 0\n"),
      std::string::npos)
      << asked;
  EXPECT_EQ(asked.find("--user"), 0U);
}

}  // namespace
}  // namespace whyrss::memory_group_test
