// File pages that went while their mapping stayed: what counts as taken back by the kernel, and what does not.
#include "replay/file_pages.h"

#include <gtest/gtest.h>

namespace whyrss::file_pages_test {
namespace {

constexpr std::uint64_t kPage = 4096, kBase = 0x7f0000000000;

Vma mapping(std::uint64_t from_page, std::uint64_t to_page, const std::string& path = "/data/big.bin") {
  Vma vma;
  vma.start = kBase + from_page * kPage;
  vma.end = kBase + to_page * kPage;
  vma.path = path;
  vma.backing = Backing::file;
  return vma;
}

ResidentRun resident(std::uint64_t from_page, std::uint64_t to_page, bool file = true) {
  return {.start = kBase + from_page * kPage, .end = kBase + to_page * kPage, .file = file};
}

WalkedPages seen(std::vector<Vma> vmas, std::vector<ResidentRun> runs) {
  WalkedPages pages;
  pages.vmas = std::move(vmas);
  pages.runs = std::move(runs);
  return pages;
}

TEST(FilePages, AScanUnderALimit) {
  FilePages file;
  EXPECT_EQ(file.observe(seen({mapping(0, 100)}, {resident(0, 40)})), 0);
  EXPECT_EQ(file.observe(seen({mapping(0, 100)}, {resident(30, 70)})), 30 * 4096);
  EXPECT_EQ(file.observe(seen({mapping(0, 100)}, {resident(60, 65), resident(70, 100)})), 35 * 4096);
}

TEST(FilePages, WhatTheProgramGaveUpItselfIsNotTakenBack) {
  FilePages file;
  file.observe(seen({mapping(0, 100)}, {resident(0, 40)}));
  file.forget(kBase, 10 * kPage, false);  // MADV_DONTNEED
  EXPECT_EQ(file.observe(seen({mapping(0, 100)}, {resident(10, 35)})), 5 * 4096);
  file.forget(kBase, 100 * kPage, false);  // munmap, and the next one at the same place
  EXPECT_EQ(file.observe(seen({mapping(0, 100)}, {})), 0);
}

// It was seen, and given up before the walk was over.
TEST(FilePages, GivenUpDuringALook) {
  FilePages file;
  file.forget(kBase, 20 * kPage, true);
  file.observe(seen({mapping(0, 100)}, {resident(0, 40)}));
  EXPECT_EQ(file.observe(seen({mapping(0, 100)}, {})), 20 * 4096);
}

TEST(FilePages, WrittenUnmappedUnseenOrOfAnotherFile) {
  FilePages file;
  file.observe(seen({mapping(0, 100)}, {resident(0, 40)}));
  EXPECT_EQ(file.observe(seen({mapping(0, 100)}, {resident(0, 40, false)})), 0);  // copied by a write
  EXPECT_EQ(file.observe(seen({mapping(0, 100)}, {})), 0);                        // anonymous pages are no file's
  file.observe(seen({mapping(0, 100)}, {resident(0, 40)}));
  EXPECT_EQ(file.observe(seen({mapping(0, 100, "/data/other.bin")}, {})), 0);
  file.observe(seen({mapping(0, 100)}, {resident(0, 40)}));
  EXPECT_EQ(file.observe(seen({}, {})), 0);
}

TEST(FilePages, WalksThatSayNothingOfPages) {
  FilePages file;
  file.observe(seen({mapping(0, 100)}, {resident(0, 40)}));
  WalkedPages vague = seen({mapping(0, 100)}, {});
  vague.smaps_only = true;
  EXPECT_EQ(file.observe(vague), 0);
  EXPECT_EQ(file.observe(seen({mapping(0, 100)}, {resident(0, 30)})), 10 * 4096);
}

}  // namespace
}  // namespace whyrss::file_pages_test
