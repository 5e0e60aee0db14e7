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

TEST(TargetMemory, ReadsWithoutCopyingWhatAForkShares) {
  // Given pages that a forked child shares with this process
  auto* pages = static_cast<std::byte*>(
      mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(pages, MAP_FAILED);
  madvise(pages, kPages * kPage, MADV_NOHUGEPAGE);
  std::memset(pages, 7, kPages * kPage);
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  ASSERT_EQ(exclusive_pages(child, pages), 0U);

  // When all of them are read, in one piece and in small ones
  const TargetMemory memory(child);
  std::vector<std::byte> bytes(kPages * kPage);
  EXPECT_TRUE(memory.read(address_of(pages), bytes).ok());
  std::vector<std::uint64_t> places(kPages);
  for (std::size_t i = 0; i < kPages; ++i) places[i] = address_of(pages) + i * kPage + 8;
  const std::vector<std::byte> parts = memory.read_each(places, 48);

  // Then the bytes are there, and the pages are still shared
  EXPECT_EQ(bytes, std::vector<std::byte>(kPages * kPage, std::byte{7}));
  EXPECT_EQ(parts, std::vector<std::byte>(kPages * 48, std::byte{7}));
  EXPECT_EQ(exclusive_pages(child, pages), 0U);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  munmap(pages, kPages * kPage);
}

TEST(TargetMemory, ReadsWithoutCopyingWhatAForkSharesSince) {
  auto* pages = static_cast<std::byte*>(
      mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(pages, MAP_FAILED);
  madvise(pages, kPages * kPage, MADV_NOHUGEPAGE);
  std::memset(pages, 7, kPages * kPage);
  std::atomic<std::uint32_t> forks{3};
  const TargetMemory memory(getpid(), ForkCount{&forks, forks.load()});  // nobody shared them then
  forks.fetch_add(1);
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  std::vector<std::uint64_t> places(kPages);
  for (std::size_t i = 0; i < kPages; ++i) places[i] = address_of(pages) + i * kPage + 8;
  EXPECT_EQ(memory.read_each(places, 48), std::vector<std::byte>(kPages * 48, std::byte{7}));
  EXPECT_EQ(exclusive_pages(child, pages), 0U);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  munmap(pages, kPages * kPage);
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
