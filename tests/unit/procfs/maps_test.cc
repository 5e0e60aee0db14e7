// maps and mountinfo: lines as the kernel prints them, and lines that it never would.
#include "procfs/maps.h"

#include <gtest/gtest.h>

namespace whyrss::maps_test {
namespace {

TEST(Maps, ReadsEveryFieldOfALine) {
  const auto entry =
      parse_maps_line("7f0c1a200000-7f0c1a222000 r-xp 00026000 fe:01 1966 /usr/lib/x86_64-linux-gnu/libc.so.6");
  ASSERT_TRUE(entry.has_value());
  EXPECT_EQ(entry->start, 0x7f0c1a200000U);
  EXPECT_EQ(entry->end, 0x7f0c1a222000U);
  EXPECT_TRUE(entry->readable && entry->executable && !entry->writable && !entry->shared);
  EXPECT_EQ(entry->file_offset, 0x26000U);
  EXPECT_EQ(entry->device_major, 0xfeU);
  EXPECT_EQ(entry->device_minor, 1U);
  EXPECT_EQ(entry->inode, 1966U);
  EXPECT_EQ(entry->path, "/usr/lib/x86_64-linux-gnu/libc.so.6");
}

TEST(Maps, KeepsBlanksAndMarksInNames) {
  EXPECT_EQ(parse_maps_line("1000-2000 rw-s 00000000 00:01 5    /memfd:a b (deleted)")->path, "/memfd:a b (deleted)");
  EXPECT_EQ(parse_maps_line("1000-2000 rw-p 00000000 00:00 0 ")->path, "");
  EXPECT_EQ(parse_maps_line("ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0   [vsyscall]")->end,
            0xffffffffff601000U);
}

TEST(Maps, SkipsWhatIsNoMapping) {
  for (const char* line : {"", "x", "1000-2000", "2000-1000 rw-p 0 00:00 0", "1000-2000 rw 0 00:00 0",
                           "1000-2000 rw-p z 00:00 0", "1000-2000 rw-p 0 0000 0", "1000-2000 rw-p 0 00:00 -3"})
    EXPECT_FALSE(parse_maps_line(line).has_value()) << line;
  EXPECT_EQ(parse_maps("1000-2000 rw-p 0 00:00 0\ngarbage\n2000-3000 r--p 0 00:00 0 /a").size(), 2U);
}

// As seen beside a program that swaps mappings with mremap.
TEST(Maps, OfLinesThatOverlapTheLaterOneCounts) {
  const auto entries = parse_maps(
      "1000-3000 rw-p 0 00:00 0 /a\n3000-4000 rw-p 0 00:00 0 /b\n2000-5000 r--p 0 00:00 0 /c\n"
      "5000-6000 rw-p 0 00:00 0 /d\n");
  ASSERT_EQ(entries.size(), 3U);
  EXPECT_EQ(entries[0].end, 0x2000U);
  EXPECT_EQ(entries[1].path, "/c");
  EXPECT_EQ(entries[1].start, 0x2000U);
  EXPECT_EQ(entries[2].path, "/d");
}

TEST(Mountinfo, FindsTheTypeBehindOptionalFields) {
  const auto types = parse_mountinfo(
      "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue\n"
      "25 20 0:21 / /dev/shm rw,nosuid - tmpfs tmpfs rw\n"
      "cut off\n");
  ASSERT_EQ(types.size(), 2U);
  EXPECT_EQ(types.at({98, 0}), "ext3");
  EXPECT_EQ(types.at({0, 21}), "tmpfs");
}

}  // namespace
}  // namespace whyrss::maps_test
