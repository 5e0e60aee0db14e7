// Reading another process changes nothing in it.
#include "collect/read/target_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include "support/file.h"

namespace whyrss::target_memory_test {
namespace {

constexpr std::size_t kPage = 4096, kPages = 16;

std::uint64_t address_of(const std::byte* place) { return reinterpret_cast<std::uint64_t>(place); }

// Pages of the process that nobody else maps (bit 56 of pagemap).
std::size_t exclusive_pages(pid_t pid, const std::byte* start) {
  const Fd pagemap(open(("/proc/" + std::to_string(pid) + "/pagemap").c_str(), O_RDONLY | O_CLOEXEC));
  std::array<std::uint64_t, kPages> entries{};
  const auto offset = static_cast<off_t>(address_of(start) / kPage * sizeof(std::uint64_t));
  EXPECT_EQ(pread(pagemap.get(), entries.data(), sizeof entries, offset), static_cast<ssize_t>(sizeof entries));
  return static_cast<std::size_t>(
      std::ranges::count_if(entries, [](std::uint64_t entry) { return (entry >> 56 & 1) != 0; }));
}

// Pages full of sevens, and a forked child that has them too.
class ForkedPages {
 public:
  ForkedPages() { std::memset(pages_, 7, kPages * kPage); }
  ForkedPages(const ForkedPages&) = delete;
  ForkedPages& operator=(const ForkedPages&) = delete;
  ~ForkedPages() {
    if (child_ > 0) {
      kill(child_, SIGKILL);
      waitpid(child_, nullptr, 0);
    }
    munmap(pages_, kPages * kPage);
  }

  void fork_child() {
    child_ = fork();
    if (child_ == 0) {
      for (;;) pause();
    }
    ASSERT_EQ(exclusive_pages(child_, pages_), 0U);
  }
  [[nodiscard]] pid_t child() const { return child_; }
  [[nodiscard]] const std::byte* start() const { return pages_; }

 private:
  static std::byte* mapped() {
    void* const pages = mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(pages, MAP_FAILED);
    madvise(pages, kPages * kPage, MADV_NOHUGEPAGE);
    return static_cast<std::byte*>(pages);
  }

  std::byte* pages_ = mapped();
  pid_t child_ = 0;
};

// Of each page a part is there, and that copies none.
void expect_read_without_copies(const TargetMemory& memory, const ForkedPages& pages) {
  std::vector<std::uint64_t> places(kPages);
  for (std::size_t i = 0; i < kPages; ++i) places[i] = address_of(pages.start()) + i * kPage + 8;
  EXPECT_EQ(memory.read_each(places, 48), std::vector<std::byte>(kPages * 48, std::byte{7}));
  EXPECT_EQ(exclusive_pages(pages.child(), pages.start()), 0U);
}

TEST(TargetMemory, ReadsWithoutCopyingWhatAForkShares) {
  ForkedPages pages;
  pages.fork_child();
  const TargetMemory memory(pages.child());
  std::vector<std::byte> bytes(kPages * kPage);
  EXPECT_TRUE(memory.read(address_of(pages.start()), bytes).ok());
  EXPECT_EQ(bytes, std::vector<std::byte>(kPages * kPage, std::byte{7}));
  expect_read_without_copies(memory, pages);
}

TEST(TargetMemory, ReadsWithoutCopyingWhatAForkSharesSince) {
  ForkedPages pages;
  std::atomic<std::uint32_t> forks{3};
  const TargetMemory memory(getpid(), ForkCount{&forks, forks.load()});  // only this process has them
  forks.fetch_add(1);
  pages.fork_child();
  expect_read_without_copies(memory, pages);
}

TEST(TargetMemory, WhatCannotBeReadIsZeroOrAnError) {
  auto* pages =
      static_cast<std::byte*>(mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(pages, MAP_FAILED);
  std::memset(pages, 7, kPage);
  munmap(pages + kPage, kPage);
  const TargetMemory memory(getpid());
  std::vector<std::byte> bytes(kPage + 1);
  EXPECT_FALSE(memory.read(address_of(pages), bytes).ok());
  const std::vector<std::uint64_t> places{address_of(pages) + kPage, address_of(pages), address_of(pages) + kPage - 1};
  EXPECT_EQ(memory.read_each(places, 2), (std::vector<std::byte>{std::byte{0}, std::byte{0}, std::byte{7}, std::byte{7},
                                                                 std::byte{0}, std::byte{0}}));
  EXPECT_FALSE(TargetMemory(-1).read(address_of(pages), bytes).ok());
  munmap(pages, kPage);
}

}  // namespace
}  // namespace whyrss::target_memory_test
