#include "recording/manifest_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "file_tree.h"

namespace whyrss::manifest_file_test {
namespace {

class ManifestFileTest : public testing::Test {
 protected:
  [[nodiscard]] std::string shown() const {
    std::string text = tree_.read("manifest.json");
    while (text.ends_with('\n')) text.pop_back();
    return text;
  }
  [[nodiscard]] std::uint64_t inode() const {
    struct stat status {};
    EXPECT_EQ(stat((tree_.path() + "/manifest.json").c_str(), &status), 0);
    return status.st_ino;
  }

  FileTree tree_;
  ManifestFile file_{tree_.path()};
};

TEST_F(ManifestFileTest, ShowsTheLastTextAndNothingOfLongerOnes) {
  for (const std::size_t size : {100U, 30U, 5000U, 1U, 40'000U, 7U}) {
    const std::string text(size, 'x');
    ASSERT_TRUE(file_.write(text).ok());
    EXPECT_EQ(shown(), text);
  }
}

TEST_F(ManifestFileTest, ChangesBetweenTwoFilesWithReservedBlocks) {
  ASSERT_TRUE(file_.write("first").ok());
  const std::uint64_t first = inode();
  ASSERT_TRUE(file_.write("second").ok());
  const std::uint64_t second = inode();
  ASSERT_TRUE(file_.write("third").ok());
  if (first == second) GTEST_SKIP() << "no RENAME_EXCHANGE on this file system";
  EXPECT_EQ(inode(), first);
  struct stat status {};
  ASSERT_EQ(stat((tree_.path() + "/manifest.spare").c_str(), &status), 0);
  EXPECT_EQ(status.st_ino, second);
  EXPECT_GE(status.st_blocks * 512, 8192);
}

TEST_F(ManifestFileTest, ReservesWhatItWillGrowBy) {
  ASSERT_TRUE(file_.write("first", 100'000).ok());
  struct stat status {};
  ASSERT_EQ(stat((tree_.path() + "/manifest.spare").c_str(), &status), 0);
  if (status.st_blocks == 0) GTEST_SKIP() << "no reservation on this file system";
  EXPECT_GE(status.st_blocks * 512, 100'000);
}

TEST_F(ManifestFileTest, IsMadeAgainWhenItWasTakenAway) {
  ASSERT_TRUE(file_.write("first").ok());
  std::filesystem::remove(tree_.path() + "/manifest.json");
  ASSERT_TRUE(file_.write("second").ok());
  EXPECT_EQ(shown(), "second");
  ASSERT_TRUE(file_.write("third").ok());
  EXPECT_EQ(shown(), "third");
}

TEST_F(ManifestFileTest, LeavesNoSpare) {
  for (const char* text : {"a longer text", "another long text", "last"}) ASSERT_TRUE(file_.write(text).ok());
  file_.drop_reserve();
  EXPECT_FALSE(std::filesystem::exists(tree_.path() + "/manifest.spare"));
  EXPECT_EQ(tree_.read("manifest.json"), "last");
}

}  // namespace
}  // namespace whyrss::manifest_file_test
