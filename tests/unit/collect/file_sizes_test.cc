// How large mapped files are: what is asked, when it is told, and what a report reads of it.
#include "collect/read/file_sizes.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "load/load.h"
#include "recording_builder.h"
#include "support/file.h"

namespace whyrss::file_sizes_test {
namespace {

using testing_support::ByteVector;
using testing_support::TestRecording;

constexpr std::uint64_t kMiB = 1024 * 1024;

class AFile : public testing::Test {
 protected:
  AFile() {
    fd_ = Fd(mkstemp(path_.data()));
    EXPECT_EQ(ftruncate(fd_.get(), static_cast<off_t>(8 * kMiB + 100)), 0);
    EXPECT_EQ(fstat(fd_.get(), &status_), 0);
    entry_.device_major = major(status_.st_dev);
    entry_.device_minor = minor(status_.st_dev);
    entry_.path = path_;
    resolver_.classify(entry_, getpid());
  }
  ~AFile() override { unlink(path_.c_str()); }

  // `pages` of it are in memory.
  [[nodiscard]] WalkedVma mapping(std::uint64_t offset, std::uint64_t bytes, std::uint32_t pages) const {
    return {.vma = {.start = kMiB,
                    .end = kMiB + bytes,
                    .file_offset = offset,
                    .inode = status_.st_ino,
                    .device_major = entry_.device_major,
                    .device_minor = entry_.device_minor,
                    .perms = trace::VmaPerms::read,
                    .backing = trace::Backing::file,
                    .path_bytes = 0,
                    .run_count = 1},
            .path = path_,
            .runs = {{.bits = trace::PageBits::present | trace::PageBits::file, .page_count = pages}}};
  }
  std::optional<nlohmann::json> changes(const std::vector<WalkedVma>& vmas, bool anew = false) {
    PageWalk walk;
    walk.vmas = vmas;
    return sizes_.changes(walk, resolver_, getpid(), anew);
  }
  [[nodiscard]] bool is_reported() const { return resolver_.is_local(entry_.device_major, entry_.device_minor); }

  std::string path_ = std::string(testing::TempDir()) + "whyrss-sizes-XXXXXX";
  Fd fd_;
  struct stat status_ {};
  MapsEntry entry_;
  BackingResolver resolver_;
  MappedFileSizes sizes_;
};

TEST_F(AFile, ItsSizeAndWhatOfItIsMappedAreReportedOnce) {
  if (!is_reported()) GTEST_SKIP() << "the folder for temporary files is of no kind of file system that is asked";
  EXPECT_FALSE(changes({mapping(0, 8 * kMiB, 255)}));  // less than 1 MiB in memory
  const std::int64_t size = 8 * kMiB + 100, whole = 8 * kMiB + 4096;
  const auto reported = changes({mapping(0, 64 * kMiB, 256), mapping(6 * kMiB, kMiB, 0)});
  ASSERT_TRUE(reported);
  EXPECT_EQ(reported->at("files"),
            nlohmann::json::array(
                {{{"path", path_}, {"size_bytes", size}, {"mapped_bytes", whole + static_cast<std::int64_t>(kMiB)}}}));
  EXPECT_FALSE(changes({mapping(0, 64 * kMiB, 300), mapping(6 * kMiB, kMiB, 0)}));
  ASSERT_EQ(ftruncate(fd_.get(), static_cast<off_t>(16 * kMiB)), 0);
  EXPECT_FALSE(changes({mapping(0, 64 * kMiB, 300), mapping(6 * kMiB, kMiB, 0)}));
  WalkedVma written = mapping(0, 64 * kMiB, 300);
  written.vma.perms = trace::VmaPerms::read | trace::VmaPerms::write;
  EXPECT_FALSE(changes({written, mapping(6 * kMiB, kMiB, 0)}));  // to a copy
  written.vma.perms |= trace::VmaPerms::shared;
  const auto writable = changes({written, mapping(6 * kMiB, kMiB, 0)});
  ASSERT_TRUE(writable);
  EXPECT_EQ(writable->at("files")[0].at("writable"), true);
  const auto grown = changes({mapping(0, 64 * kMiB, 300)}, true);
  ASSERT_TRUE(grown);
  EXPECT_EQ(grown->at("files")[0].at("size_bytes"), 16 * kMiB);
  EXPECT_EQ(grown->at("files")[0].at("mapped_bytes"), 16 * kMiB);
}

TEST_F(AFile, AnotherFileOfItsNameIsNotTaken) {
  status_.st_ino += 1;
  EXPECT_FALSE(changes({mapping(0, 8 * kMiB, 300)}));
  EXPECT_FALSE(changes({mapping(0, 8 * kMiB, 300)}, true));
}

TEST_F(AFile, AskedForOnlyWhereNobodyCanKeepUsWaiting) {
  WalkedVma elsewhere = mapping(0, 8 * kMiB, 300);
  elsewhere.vma.device_major = 0xfff;  // of no mount that is known
  EXPECT_FALSE(changes({elsewhere}));
}

TEST(FileSizesOfARecording, WhatIsNoSizeIsLeftOut) {
  TestRecording recording;
  const std::string text = R"({"files":[{"path":"/a","size_bytes":5,"mapped_bytes":7},{"path":"/b","size_bytes":-1,
      "mapped_bytes":7},{"path":"c","size_bytes":5,"mapped_bytes":7},{"path":"/d","size_bytes":"5"},3]})";
  ByteVector payload;
  for (const char letter : text) payload.push_back(static_cast<std::byte>(letter));
  recording.add(100, {}, {{trace::FrameKind::file_sizes, payload}});
  recording.write_manifest();
  const auto account = load_account(recording.path());
  ASSERT_TRUE(account.ok()) << account.error();
  const auto& sizes = account->processes.at(0).file_sizes;
  ASSERT_EQ(sizes.size(), 1U);
  ASSERT_EQ(sizes[0].files.size(), 1U);
  EXPECT_EQ(sizes[0].files.at("/a").size_bytes, 5);
  EXPECT_EQ(sizes[0].files.at("/a").mapped_bytes, 7);
}

}  // namespace
}  // namespace whyrss::file_sizes_test
