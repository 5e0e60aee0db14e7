// The pool: what is published is read once, in order, complete; what does not fit is counted; a kill
// on either side loses nothing that was published.
#include "shim/trace/pool.h"

#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <map>
#include <thread>
#include <vector>

#include "shim/trace/own_calls.h"

namespace whyrss::trace {
namespace {

constexpr SessionId kSession{.high = 7, .low = 9};

class Pool : public testing::Test {
 protected:
  void SetUp() override {
    end_pauses();
    make(8, 4);
  }
  void TearDown() override { munmap(mapping_, bytes_); }

  // What other tests of this process may have left: for some drops no space is asked for after there was none, and for
  // a while nobody waits for a reader after a wait in vain.
  static void end_pauses() {
    const std::uint64_t bytes = pool_bytes(1, 1);
    void* scratch = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(scratch, MAP_FAILED);
    const Writer writer{.pool = format_pool(scratch, 1, 1, kSession, 1), .pid = 1, .tid = 11};
    Lease lease;
    bool is_written = false;
    for (int attempt = 0; attempt < 10'000 && !is_written; ++attempt) is_written = write_number(writer, lease, 0);
    ASSERT_TRUE(is_written);
    munmap(scratch, bytes);
    std::this_thread::sleep_until(waits_again_at_);
  }
  static void note_wait_in_vain() {
    waits_again_at_ = std::chrono::steady_clock::now() + std::chrono::nanoseconds(kLongestWaitNs);
  }

  void make(std::uint32_t chunks, std::uint32_t slots) {
    if (mapping_ != nullptr) munmap(mapping_, bytes_);
    bytes_ = pool_bytes(chunks, slots);
    mapping_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(mapping_, MAP_FAILED);
    pool_ = format_pool(mapping_, chunks, slots, kSession);
  }

  static bool write_number(const Writer& writer, Lease& lease, std::uint64_t number) {
    auto* record = reinterpret_cast<TextRecord*>(reserve(writer, lease, sizeof(TextRecord)));
    if (record == nullptr) return false;
    *record = {.header = {.size_bytes = sizeof(TextRecord), .kind = RecordKind::mark, .reserved = 0, .time_ns = number},
               .argument = 0,
               .text_bytes = 0};
    publish(lease, sizeof(TextRecord));
    return true;
  }

  // All numbers now published, per thread id, in the order of their leases.
  std::map<std::uint32_t, std::vector<std::uint64_t>> drain(bool owners_gone = false) {
    std::map<std::uint64_t, std::pair<std::uint32_t, std::vector<std::uint64_t>>> by_lease;
    for (std::uint32_t index = 0; index < pool_.header->chunk_count; ++index) {
      const Segment segment = next_segment(pool_, index);
      auto& [tid, numbers] = by_lease[segment.lease];
      tid = segment.tid;
      for (std::size_t at = 0; at < segment.bytes.size(); at += sizeof(TextRecord)) {
        TextRecord record;
        std::memcpy(&record, segment.bytes.data() + at, sizeof record);
        numbers.push_back(record.header.time_ns);
      }
      finish_segment(pool_, segment, owners_gone && !segment.bytes.empty());
    }
    std::map<std::uint32_t, std::vector<std::uint64_t>> result;
    for (const auto& [lease, entry] : by_lease) {
      auto& numbers = result[entry.first];
      numbers.insert(numbers.end(), entry.second.begin(), entry.second.end());
    }
    return result;
  }

  void* mapping_ = nullptr;
  std::uint64_t bytes_ = 0;
  PoolView pool_;

 private:
  static inline std::chrono::steady_clock::time_point waits_again_at_{};
};

TEST_F(Pool, ReadsEachRecordOnceAndInOrder) {
  const Writer writer{.pool = pool_, .pid = 1, .tid = 11};
  Lease lease;
  for (std::uint64_t number = 0; number < 1000; ++number) ASSERT_TRUE(write_number(writer, lease, number));
  auto first = drain();
  for (std::uint64_t number = 1000; number < 1500; ++number) ASSERT_TRUE(write_number(writer, lease, number));
  auto second = drain();

  auto all = first[11];
  all.insert(all.end(), second[11].begin(), second[11].end());
  ASSERT_EQ(all.size(), 1500U);
  for (std::uint64_t number = 0; number < 1500; ++number) EXPECT_EQ(all[number], number);
  EXPECT_TRUE(drain()[11].empty());
}

TEST_F(Pool, DropsAndCountsWhenFullAndMarksTheGap) {
  const Writer writer{.pool = pool_, .pid = 1, .tid = 11, .slot = claim_slot(pool_, 1, 5)};
  Lease lease;
  const std::uint64_t room = 8 * (kChunkBytes / sizeof(TextRecord));
  for (std::uint64_t number = 0; number < room; ++number) ASSERT_TRUE(write_number(writer, lease, number));
  EXPECT_FALSE(write_number(writer, lease, room));
  EXPECT_FALSE(write_number(writer, lease, room + 1));
  EXPECT_EQ(pool_.header->dropped_records.load(), 2U);
  EXPECT_EQ(pool_.slots[writer.slot].dropped_records.load(), 2U);

  EXPECT_EQ(drain()[11].size(), room);
  ASSERT_TRUE(write_number(writer, lease, room + 2));
  std::uint32_t lost = 0;
  for (std::uint32_t index = 0; index < 8; ++index)
    if (!next_segment(pool_, index).bytes.empty()) lost = next_segment(pool_, index).lost_before;
  EXPECT_EQ(lost, 2U);
}

TEST_F(Pool, ExactModeWaitsForALivingReader) {
  const std::uint32_t slot = claim_slot(pool_, 1, 5);
  const Writer writer{.pool = pool_, .pid = 1, .tid = 11, .slot = slot, .start_ticks = 5, .is_exact = true};
  constexpr std::uint64_t kNumbers = 100 * (kChunkBytes / sizeof(TextRecord));
  // Given a reader that lives but takes nothing before the writer waits for it
  pool_.header->reader_pid.store(1);
  pool_.header->reader_beat_ns.store(UINT64_MAX);
  std::atomic<bool> done{false};
  std::vector<std::uint64_t> read;
  std::thread reader([&] {
    while (pool_.slots[slot].waits.load() == 0 && !done) std::this_thread::yield();
    for (bool last = false; !last;) {
      last = done.load();
      const auto drained = drain();
      if (const auto found = drained.find(11); found != drained.end())
        read.insert(read.end(), found->second.begin(), found->second.end());
    }
  });
  // When far more is written than there is room for, then nothing is lost
  Lease lease;
  for (std::uint64_t number = 0; number < kNumbers; ++number) EXPECT_TRUE(write_number(writer, lease, number));
  done = true;
  reader.join();
  std::sort(read.begin(), read.end());
  ASSERT_EQ(read.size(), kNumbers);
  for (std::uint64_t number = 0; number < kNumbers; ++number) ASSERT_EQ(read[number], number);
  EXPECT_EQ(pool_.header->dropped_records.load(), 0U);
  EXPECT_GT(pool_.header->doorbell.load(), 0U);
}

TEST_F(Pool, ExactModeDoesNotWaitForNobodyNorForLong) {
  const std::uint32_t slot = claim_slot(pool_, 1, 5);
  const Writer writer{.pool = pool_, .pid = 1, .tid = 11, .slot = slot, .start_ticks = 5, .is_exact = true};
  Lease lease;
  while (write_number(writer, lease, 0)) {
  }
  EXPECT_EQ(pool_.slots[slot].waits.load(), 0U);
  // A reader that lives and never takes anything holds the writer up for a while, and then not for as long.
  pool_.header->reader_pid.store(1);
  pool_.header->reader_beat_ns.store(UINT64_MAX);
  EXPECT_FALSE(write_number(writer, lease, 0));
  EXPECT_FALSE(write_number(writer, lease, 0));
  EXPECT_GE(pool_.slots[slot].waits.load(), 1U);
  for (int number = 0; number < 100; ++number) EXPECT_FALSE(write_number(writer, lease, 0));
  EXPECT_LT(pool_.slots[slot].waits.load(), 100U);
  note_wait_in_vain();
  EXPECT_EQ(pool_.slots[slot].dropped_records.load(), 103U);
}

TEST_F(Pool, ExactModeDoesNotWaitForADeadReader) {
  const std::uint32_t slot = claim_slot(pool_, 1, 5);
  const Writer writer{.pool = pool_, .pid = 1, .tid = 11, .slot = slot, .start_ticks = 5, .is_exact = true};
  pool_.header->reader_pid.store(1);
  pool_.header->reader_beat_ns.store(UINT64_MAX);
  pool_.header->reader_life.store(FUTEX_OWNER_DIED);
  Lease lease;
  while (write_number(writer, lease, 0)) {
  }
  EXPECT_EQ(pool_.slots[slot].waits.load(), 0U);
}

TEST_F(Pool, RefusesARecordLargerThanAChunk) {
  const Writer writer{.pool = pool_, .pid = 1, .tid = 11};
  Lease lease;
  EXPECT_EQ(reserve(writer, lease, kChunkBytes + 1), nullptr);
  EXPECT_NE(reserve(writer, lease, kChunkBytes), nullptr);
}

TEST_F(Pool, TakesBackTheChunksOfDeadThreads) {
  for (std::uint32_t tid = 1; tid <= 40; ++tid) {
    const Writer writer{.pool = pool_, .pid = 1, .tid = tid};
    Lease lease;  // never sealed, as after SIGKILL
    ASSERT_TRUE(write_number(writer, lease, tid)) << "thread " << tid;
    EXPECT_EQ(drain(true)[tid], std::vector<std::uint64_t>{tid});
  }
}

TEST_F(Pool, HandsChunksToManyThreadsWithoutMixingThem) {
  make(64, 4);
  constexpr std::uint64_t kEach = 4000;
  std::vector<std::thread> threads;
  for (std::uint32_t tid = 1; tid <= 4; ++tid)
    threads.emplace_back([this, tid] {
      const Writer writer{.pool = pool_, .pid = 1, .tid = tid};
      Lease lease;
      for (std::uint64_t number = 0; number < kEach; ++number) write_number(writer, lease, number);
      seal(lease);
    });
  std::map<std::uint32_t, std::vector<std::uint64_t>> all;
  const auto collect = [&] {
    for (auto& [tid, numbers] : drain()) all[tid].insert(all[tid].end(), numbers.begin(), numbers.end());
  };
  for (int round = 0; round < 50; ++round) collect();
  for (auto& thread : threads) thread.join();
  collect();
  std::uint64_t read = 0;
  for (std::uint32_t tid = 1; tid <= 4; ++tid) {
    read += all[tid].size();
    // A thread may move on to its next chunk between the reader's reads of the two: leases tell the order.
    std::sort(all[tid].begin(), all[tid].end());
    for (std::size_t i = 1; i < all[tid].size(); ++i) ASSERT_LT(all[tid][i - 1], all[tid][i]);
  }
  EXPECT_EQ(read + pool_.header->dropped_records.load(), 4 * kEach);
}

TEST_F(Pool, KeepsWhatAKilledWriterPublished) {
  make(256, 4);
  for (int round = 0; round < 20; ++round) {
    auto* announced = static_cast<std::atomic<std::uint64_t>*>(
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const Writer writer{.pool = pool_, .pid = 1, .tid = 11};
      Lease lease;
      for (std::uint64_t number = 0; write_number(writer, lease, number); ++number) announced->store(number + 1);
      pause();
    }
    while (announced->load() < 1000) usleep(100);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    const std::vector<std::uint64_t> numbers = drain(true)[11];
    EXPECT_GE(numbers.size(), announced->load());
    for (std::size_t i = 0; i < numbers.size(); ++i) ASSERT_EQ(numbers[i], i);
    munmap(announced, 4096);
  }
}

TEST_F(Pool, OpensOnlyWhatIsAPool) {
  EXPECT_TRUE(open_pool(mapping_, bytes_));
  EXPECT_EQ(open_pool(mapping_, bytes_).header->session, kSession);
  EXPECT_FALSE(open_pool(mapping_, bytes_ - 1));
  EXPECT_FALSE(open_pool(mapping_, 100));
  pool_.header->version = kPoolVersion + 1;
  EXPECT_FALSE(open_pool(mapping_, bytes_));
  pool_.header->version = kPoolVersion;
  pool_.header->chunk_count = 1U << 30;
  EXPECT_FALSE(open_pool(mapping_, bytes_));
}

// A pool in a file that has room for only so many of its chunks, as on a disk that fills up.
class PoolByNeed : public Pool {
 protected:
  static constexpr std::uint32_t kChunks = 8, kSlots = 4;

  void make_by_need(std::uint32_t ready_chunks, std::uint32_t chunks_with_room) {
    munmap(mapping_, bytes_);
    bytes_ = pool_bytes(kChunks, kSlots);
    fd_ = memfd_create("pool", MFD_CLOEXEC);
    ASSERT_EQ(ftruncate(fd_, static_cast<off_t>(reserved_bytes(kChunks, kSlots, kChunks - chunks_with_room))), 0);
    mapping_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    ASSERT_NE(mapping_, MAP_FAILED);
    ASSERT_TRUE(reserve_pages(mapping_, reserved_bytes(kChunks, kSlots, kChunks - ready_chunks)));
    pool_ = format_pool(mapping_, kChunks, kSlots, kSession, kChunks - ready_chunks);
  }
  void TearDown() override {
    close(fd_);
    Pool::TearDown();
  }

  // Records until one is dropped.
  std::uint64_t fill() {
    const Writer writer{.pool = pool_, .pid = 1, .tid = 11};
    std::uint64_t number = 0;
    while (write_number(writer, lease_, number)) ++number;
    return number;
  }
  std::uint64_t space_bytes() const {
    struct stat status {};
    fstat(fd_, &status);
    return static_cast<std::uint64_t>(status.st_blocks) * 512;
  }

  static constexpr std::uint64_t kRecordsAChunk = kChunkBytes / sizeof(TextRecord);
  Lease lease_;
  int fd_ = -1;
};

TEST_F(PoolByNeed, ReservesWhatABurstNeedsAndNoMore) {
  make_by_need(2, kChunks);
  const std::uint64_t at_first = space_bytes();
  EXPECT_EQ(at_first, reserved_bytes(kChunks, kSlots, kChunks - 2));
  const Writer writer{.pool = pool_, .pid = 1, .tid = 11};
  for (std::uint64_t number = 0; number < 3 * kRecordsAChunk; ++number)
    ASSERT_TRUE(write_number(writer, lease_, number));
  EXPECT_EQ(space_bytes(), at_first + kChunkBytes);
  EXPECT_EQ(drain()[11].size(), 3 * kRecordsAChunk);
  EXPECT_EQ(fill(), 7 * kRecordsAChunk);  // the third is full, and this lease's own
  EXPECT_EQ(space_bytes(), bytes_ / 4096 * 4096);
  EXPECT_EQ(pool_.header->dropped_records.load(), 1);
}

TEST_F(PoolByNeed, DropsWhereNoSpaceIsLeftAndGoesOnWhenAChunkComesBack) {
  make_by_need(2, 5);
  EXPECT_EQ(fill(), 5 * kRecordsAChunk);
  EXPECT_EQ(pool_.header->dropped_records.load(), 1);
  EXPECT_EQ(pool_.header->bare_chunks.load(), 3);
  EXPECT_FALSE(add_chunks(pool_, 1));
  drain();
  EXPECT_EQ(fill(), 5 * kRecordsAChunk);
}

TEST_F(PoolByNeed, WhoCreatesThreadsReservesForThem) {
  make_by_need(2, kChunks);
  keep_free(pool_, 2);
  EXPECT_EQ(pool_.header->bare_chunks.load(), kChunks - 2);  // they are there
  keep_free(pool_, 3);
  EXPECT_EQ(pool_.header->bare_chunks.load(), 0);
  close_kernel();
  EXPECT_EQ(fill(), kChunks * kRecordsAChunk);
  open_kernel();
}

TEST_F(PoolByNeed, ReservesForThreadsWhatSpaceThereIs) {
  make_by_need(2, 3);
  keep_free(pool_, 4);
  EXPECT_EQ(pool_.header->bare_chunks.load(), kChunks - 3);
  EXPECT_EQ(fill(), 3 * kRecordsAChunk);
}

TEST_F(PoolByNeed, TheReaderAddsChunksForWritersThatMustNotEnterTheKernel) {
  make_by_need(2, kChunks);
  close_kernel();
  EXPECT_EQ(fill(), 2 * kRecordsAChunk);
  open_kernel();  // as it is for the reader
  EXPECT_TRUE(add_chunks(pool_, 1));
  close_kernel();
  EXPECT_EQ(fill(), kRecordsAChunk);
  open_kernel();
  EXPECT_TRUE(add_chunks(pool_, 1000));
  close_kernel();
  EXPECT_EQ(pool_.header->bare_chunks.load(), 0);
  EXPECT_EQ(fill(), 5 * kRecordsAChunk);
  open_kernel();
}

TEST_F(PoolByNeed, NoTwoProcessesReserveTheSameChunk) {
  make_by_need(1, kChunks);
  std::vector<pid_t> children;
  for (std::uint32_t tid = 1; tid <= 4; ++tid) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    const Writer writer{.pool = pool_, .pid = 1, .tid = tid};
    Lease lease;
    for (std::uint64_t number = 0; number < 2 * kRecordsAChunk; ++number)
      if (!write_number(writer, lease, number)) _exit(1);
    _exit(0);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  auto numbers = drain(true);
  for (std::uint32_t tid = 1; tid <= 4; ++tid) EXPECT_EQ(numbers[tid].size(), 2 * kRecordsAChunk) << tid;
}

TEST_F(Pool, TakesBackTheLastRecordUnlessItIsClaimed) {
  const Writer writer{.pool = pool_, .pid = 1, .tid = 11};
  Lease lease;
  const auto take_back = [&] { return retract(lease, lease.used - padded(sizeof(TextRecord))); };
  for (const std::uint64_t number : {1, 2, 3}) ASSERT_TRUE(write_number(writer, lease, number));
  EXPECT_TRUE(take_back());
  ASSERT_TRUE(write_number(writer, lease, 4));
  EXPECT_EQ(drain()[11], (std::vector<std::uint64_t>{1, 2, 4}));
  EXPECT_FALSE(take_back());
  ASSERT_TRUE(write_number(writer, lease, 5));
  EXPECT_EQ(drain()[11], std::vector<std::uint64_t>{5});
}

// Each number is read once, in order, and whole, unless the writer knows that it took it back.
TEST_F(Pool, WhatIsTakenBackIsNeverRead) {
  constexpr std::uint64_t kNumbers = 300'000;
  make(64, 4);
  std::vector<std::uint64_t> kept;
  std::atomic<bool> done{false};
  std::thread thread([&] {
    const Writer writer{.pool = pool_, .pid = 1, .tid = 11};
    Lease lease;
    for (std::uint64_t number = 1; number <= kNumbers; ++number) {
      if (!write_number(writer, lease, number)) {
        std::this_thread::yield();
        continue;
      }
      if (number % 4 == 0 || !retract(lease, lease.used - padded(sizeof(TextRecord)))) kept.push_back(number);
    }
    seal(lease);
    done = true;
  });
  std::vector<std::uint64_t> read;
  for (bool last = false; !last;) {
    last = done;
    const std::vector<std::uint64_t> numbers = drain()[11];
    read.insert(read.end(), numbers.begin(), numbers.end());
  }
  thread.join();
  std::ranges::sort(read);  // the reader may come upon a later chunk first
  EXPECT_EQ(read, kept);
  EXPECT_GT(kept.size(), kNumbers / 8);
}

TEST_F(Pool, SurvivesAScribblingTarget) {
  const Writer writer{.pool = pool_, .pid = 1, .tid = 11};
  Lease lease;
  ASSERT_TRUE(write_number(writer, lease, 1));
  lease.chunk->committed.store(kChunkBytes * 100);
  for (std::uint32_t index = 0; index < 8; ++index) EXPECT_TRUE(next_segment(pool_, index).bytes.empty());
  pool_.header->free_head.store(0xffffffff);
  Lease other;
  EXPECT_FALSE(write_number(writer, other, 2));
}

TEST_F(Pool, GivesASlotBackToTheProcessThatExecs) {
  const std::uint32_t slot = claim_slot(pool_, 100, 5);
  EXPECT_EQ(claim_slot(pool_, 100, 5), slot);
  EXPECT_NE(claim_slot(pool_, 101, 5), slot);
  claim_slot(pool_, 102, 5);
  claim_slot(pool_, 103, 5);
  EXPECT_EQ(claim_slot(pool_, 104, 5), kNoSlot);
  EXPECT_EQ(pool_.header->refused_slots.load(), 1U);
}

// Else it waits in vain for a walk, which is asked for in a slot that the reader does not follow.
TEST_F(Pool, AnExecKeepsItsSlotWhenTheOneBeforeWasFreedSince) {
  const std::uint32_t before = claim_slot(pool_, 100, 5);
  const std::uint32_t slot = claim_slot(pool_, 104, 6);  // the same place of 4
  ASSERT_NE(slot, before);
  pool_.slots[before].state.store(SlotState::free);
  EXPECT_EQ(claim_slot(pool_, 104, 6), slot);
  EXPECT_EQ(claim_slot(pool_, 108, 7), before);
  EXPECT_NE(claim_slot(pool_, 104, 8), slot);  // another process of that pid
}

}  // namespace
}  // namespace whyrss::trace
