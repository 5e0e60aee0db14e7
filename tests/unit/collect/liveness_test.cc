// What is live on the heap's pages: read out of a process, stored, read back.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "collect/read/backing.h"
#include "collect/read/liveness_frame.h"
#include "collect/read/liveness_read.h"
#include "collect/read/pymalloc_pools.h"
#include "decode/liveness_reader.h"
#include "shim/trace/liveness_format.h"

namespace whyrss::liveness_test {
namespace {

using trace::kLivenessPageBytes;
using trace::PageLiveness;

// Memory of this process that lies in a mapping of its own.
class Region {
 public:
  explicit Region(std::size_t size_bytes) : size_bytes_(size_bytes + 2 * kLivenessPageBytes) {
    base_ = static_cast<std::byte*>(
        mmap(nullptr, size_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    madvise(base_, size_bytes_, MADV_NOHUGEPAGE);
    mprotect(base_, kLivenessPageBytes, PROT_NONE);
    mprotect(base_ + size_bytes_ - kLivenessPageBytes, kLivenessPageBytes, PROT_NONE);
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  ~Region() { munmap(base_, size_bytes_); }

  [[nodiscard]] std::byte* begin() const { return base_ + kLivenessPageBytes; }
  [[nodiscard]] std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(begin()); }

 private:
  std::size_t size_bytes_;
  std::byte* base_;
};

// A liveness table as the shim keeps it, for the pages of one region.
class Table {
 public:
  Table() {
    std::memcpy(table_.magic.data(), trace::kLivenessMagic.data(), table_.magic.size());
    table_.directory = directory_.address();
  }
  void set(std::uint64_t address, std::uint32_t counter) { set_in(table_.directory, address, counter); }
  // The word of the page where a block begins.
  std::uint32_t& block_start(std::uint64_t address) {
    table_.block_starts = starts_.address();
    return word_in(table_.block_starts, address);
  }
  // In the directory of a thread.
  void set_of_thread(std::size_t thread, std::uint64_t address, std::uint32_t counter) {
    std::uint64_t& directory = table_.thread_directories.at(thread);
    if (directory == 0) directory = of_threads_.emplace_back(std::make_unique<Region>(kDirectoryBytes))->address();
    set_in(directory, address, counter);
  }
  [[nodiscard]] std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(&table_); }
  trace::LivenessTable& operator*() { return table_; }

 private:
  static constexpr std::size_t kDirectoryBytes = trace::kDirectoryEntries * sizeof(std::uint64_t);

  void set_in(std::uint64_t directory, std::uint64_t address, std::uint32_t counter) {
    word_in(directory, address) = counter;
  }
  std::uint32_t& word_in(std::uint64_t directory, std::uint64_t address) {
    std::uint64_t& leaf = reinterpret_cast<std::uint64_t*>(directory)[address / trace::kLeafSpan];
    if (leaf == 0) leaf = leaves_.emplace_back(std::make_unique<Region>(trace::kLeafBytes))->address();
    return reinterpret_cast<std::uint32_t*>(leaf)[address % trace::kLeafSpan / kLivenessPageBytes];
  }

  trace::LivenessTable table_{};
  Region directory_{kDirectoryBytes}, starts_{kDirectoryBytes};
  std::vector<std::unique_ptr<Region>> leaves_, of_threads_;
};

Liveness read_table(const Table& table) {
  BackingResolver resolver;
  const auto walk = walk_pages(getpid(), trace::WalkTrigger::request, probe_walk_methods(), resolver);
  EXPECT_TRUE(walk) << walk.error();
  PoolReader pools;
  return read_liveness(TargetMemory(getpid()), table.address(), *walk, pools, PoolReader::Extent::all);
}

std::map<std::uint64_t, std::uint16_t> words_within(const Liveness& liveness, std::uint64_t start, std::uint64_t end) {
  std::map<std::uint64_t, std::uint16_t> words;
  for (const LivenessPages& range : liveness.ranges)
    for (std::size_t i = 0; i < range.pages.size(); ++i) {
      const std::uint64_t address = range.start + i * kLivenessPageBytes;
      if (address >= start && address < end) words[address] = range.pages[i];
    }
  return words;
}

constexpr std::uint32_t counter_of(std::int16_t units, std::uint16_t allocations) {
  return std::uint32_t{allocations} << 16 | static_cast<std::uint16_t>(units);
}

TEST(ReadLiveness, ListsResidentPagesThatHoldOrHeldBlocks) {
  // Given a heap of 3,000 pages of which some are touched, and a table that tells of all of them
  constexpr std::uint64_t kPages = 3000;
  const Region heap(kPages * kLivenessPageBytes);
  const auto page = [&](std::uint64_t index) { return heap.address() + index * kLivenessPageBytes; };
  Table table;
  for (const std::uint64_t touched : {0U, 1U, 2U, 1500U, 2999U})
    heap.begin()[touched * kLivenessPageBytes] = std::byte{1};
  table.set(page(0), counter_of(100, 3));
  table.set(page(1), counter_of(0, 7));      // all freed
  table.set(page(2), 0);                     // never held one
  table.set(page(700), counter_of(512, 1));  // not touched
  table.set(page(1500), counter_of(-4, 1));  // blocks from before us were released
  table.set(page(2999), counter_of(600, 1));
  // When it is read
  const Liveness liveness = read_table(table);
  // Then the resident pages have their words, and the sums are of the whole table
  const auto words = words_within(liveness, page(0), page(kPages));
  const std::map<std::uint64_t, std::uint16_t> expected{{page(0), PageLiveness::ever_held | 100},
                                                        {page(1), PageLiveness::ever_held},
                                                        {page(1500), PageLiveness::ever_held},
                                                        {page(2999), PageLiveness::ever_held | 512}};
  EXPECT_EQ(words, expected);
  EXPECT_EQ(liveness.header.table_live_bytes, (100U + 512U + 600U) * 8U);
  EXPECT_EQ(liveness.header.underflowed_pages, 1U);
  EXPECT_EQ(liveness.header.flags, 0U);
}

TEST(ReadLiveness, SpreadsBlocksOverThePagesThatTheyLieOn) {
  // Given a block that begins in the middle of a page with small ones, one that was released where a longer one was
  // before, and one on pages that are CPython's by now
  constexpr std::uint64_t kPages = 3000;
  const Region heap(kPages * kLivenessPageBytes);
  const auto page = [&](std::uint64_t index) { return heap.address() + index * kLivenessPageBytes; };
  for (std::uint64_t i = 0; i < kPages; ++i) heap.begin()[i * kLivenessPageBytes] = std::byte{1};
  Table table;
  const auto allocate = [&](std::uint64_t address, std::uint64_t usable) {
    std::uint32_t& word = table.block_start(address);
    word = trace::block_start::allocated(word, address, usable);
  };
  const auto release = [&](std::uint64_t address) {
    std::uint32_t& word = table.block_start(address);
    word = trace::block_start::released(word);
  };
  table.set(page(0), counter_of(100, 3));
  allocate(page(0) + 2048, 9 * kLivenessPageBytes + 24);
  allocate(page(2000), trace::kAlwaysLoggedBytes - 8);
  release(page(2000));
  allocate(page(2000) + 16, trace::kLargeBlockBytes + 8);
  release(page(2000) + 16);
  for (std::uint64_t i = 1000; i < 1009; ++i) table.set(page(i), trace::kPymallocPage << 16);
  allocate(page(1000), trace::kLargeBlockBytes + 8);
  // When it is read
  const Liveness liveness = read_table(table);
  // Then each page has its part, and what was ever held is known
  const auto words = words_within(liveness, page(0), page(1000));
  ASSERT_EQ(words.size(), 10U);
  EXPECT_EQ(words.at(page(0)), PageLiveness::ever_held | (100 + 256));
  for (std::uint64_t i = 1; i < 9; ++i) EXPECT_EQ(words.at(page(i)), PageLiveness::ever_held | 512);
  EXPECT_EQ(words.at(page(9)), PageLiveness::ever_held | (256 + 3));
  const auto released = words_within(liveness, page(2000), page(kPages));
  EXPECT_EQ(released.size(), trace::kAlwaysLoggedBytes / kLivenessPageBytes);
  for (const auto& [address, word] : released) EXPECT_EQ(word, PageLiveness::ever_held) << address;
  for (const auto& [address, word] : words_within(liveness, page(1000), page(2000)))
    EXPECT_EQ(word, PageLiveness::pymalloc) << address;
  EXPECT_EQ(liveness.header.table_live_bytes, 800 + 9 * kLivenessPageBytes + 24);
}

TEST(ReadLiveness, AddsUpWhatThreadsCountForThemselves) {
  // Given a heap on which one thread allocates and another one releases, some of it counted by neither alone
  constexpr std::uint64_t kPages = 3000;
  const Region heap(kPages * kLivenessPageBytes);
  const auto page = [&](std::uint64_t index) { return heap.address() + index * kLivenessPageBytes; };
  for (const std::uint64_t touched : {0U, 1U, 2U, 1000U, 2000U, 2999U})
    heap.begin()[touched * kLivenessPageBytes] = std::byte{1};
  Table table;
  const auto released = [](std::int16_t units) { return -static_cast<std::uint32_t>(units); };
  table.set(page(0), counter_of(100, 3));
  table.set_of_thread(3, page(0), released(40));
  table.set_of_thread(3, page(1), counter_of(300, 5));
  table.set_of_thread(7, page(1), released(300));
  table.set_of_thread(7, page(2000), counter_of(8, 1));
  // Much that came and went: what each counted is beyond the 16 bits of a page's units, their sum is not.
  table.set_of_thread(1, page(1000), 20'000 + (5U << 16));
  table.set_of_thread(3, page(1000), 20'010 + (5U << 16));
  table.set_of_thread(7, page(1000), -40'000U);
  table.set_of_thread(3, page(2999), released(2));  // of a block from before us
  // When it is read
  const Liveness liveness = read_table(table);
  // Then a page has the sum of what they counted
  const std::map<std::uint64_t, std::uint16_t> expected{{page(0), PageLiveness::ever_held | 60},
                                                        {page(1), PageLiveness::ever_held},
                                                        {page(1000), PageLiveness::ever_held | 10},
                                                        {page(2000), PageLiveness::ever_held | 8},
                                                        {page(2999), PageLiveness::ever_held}};
  EXPECT_EQ(words_within(liveness, page(0), page(kPages)), expected);
  EXPECT_EQ(liveness.header.table_live_bytes, (60U + 10U + 8U) * 8U);
  EXPECT_EQ(liveness.header.underflowed_pages, 1U);
}

TEST(ReadLiveness, SaysWhenThereIsNoTable) {
  BackingResolver resolver;
  const auto walk = walk_pages(getpid(), trace::WalkTrigger::request, probe_walk_methods(), resolver);
  ASSERT_TRUE(walk) << walk.error();
  const std::array<char, 64> something_else{};
  const auto address = reinterpret_cast<std::uint64_t>(something_else.data());
  PoolReader pools;
  const auto flags_at = [&](std::uint64_t table) {
    return read_liveness(TargetMemory(getpid()), table, *walk, pools, PoolReader::Extent::all).header.flags;
  };
  EXPECT_EQ(flags_at(address), trace::LivenessFlags::no_table);
  EXPECT_EQ(flags_at(16), trace::LivenessFlags::not_readable);
}

PoolHead pool_of(std::uint32_t live_blocks, std::uint32_t block_bytes, std::uint64_t pool_bytes) {
  PoolHead head{};
  head.live_blocks = live_blocks;
  head.size_class = block_bytes / 16 - 1;
  head.most_next_offset = static_cast<std::uint32_t>(pool_bytes) - block_bytes;
  return head;
}

TEST(Pools, TellTheirUseByTheirHeader) {
  EXPECT_EQ(use_of_pool(pool_of(10, 64, 4096), 4096).live_bytes, 640U);
  EXPECT_TRUE(use_of_pool(pool_of(0, 64, 4096), 4096).used);
  EXPECT_FALSE(use_of_pool(PoolHead{}, 4096).used);                 // never handed out
  EXPECT_FALSE(use_of_pool(pool_of(64, 64, 4096), 4096).used);      // more than fit behind the header
  EXPECT_FALSE(use_of_pool(pool_of(1, 64, 4096), 16384).used);      // of another pool size
  EXPECT_FALSE(use_of_pool(pool_of(1, 33 * 16, 4096), 4096).used);  // no such size class
}

TEST(ReadLiveness, CountsTheObjectsOfCpythonsPools) {
  // Given an arena that begins a page before a pool does, with a full, a half full and an empty pool
  constexpr std::uint64_t kPool = 16384;
  const Region arena(8 * kPool);
  Table table;
  (*table).pymalloc_pool_bytes = kPool;
  const std::uint64_t first_pool = (arena.address() + kPool - 1) / kPool * kPool;
  for (std::uint64_t address = arena.address(); address < first_pool + 4 * kPool; address += kLivenessPageBytes) {
    table.set(address, trace::kPymallocPage << 16);
    *reinterpret_cast<volatile char*>(address) = 0;
  }
  const std::uint64_t full = first_pool, half = first_pool + kPool, empty = half + kPool;
  const auto put = [](std::uint64_t at, const PoolHead& head) {
    std::memcpy(reinterpret_cast<void*>(at), &head, sizeof head);
  };
  put(full, pool_of(1021, 16, kPool));
  put(half, pool_of(16, 512, kPool));
  put(empty, pool_of(0, 32, kPool));
  // When it is read
  const Liveness liveness = read_table(table);
  // Then each pool's live bytes lie on its pages, and pages without a pool never held anything
  const auto live_in = [&](std::uint64_t pool) {
    std::uint64_t bytes = 0;
    for (const auto& [address, word] : words_within(liveness, pool, pool + kPool))
      bytes += std::uint64_t{static_cast<std::uint16_t>(word & PageLiveness::live_units)} * 8;
    return bytes;
  };
  EXPECT_EQ(live_in(full), 1021U * 16U);
  EXPECT_EQ(live_in(half), 16U * 512U);
  for (const auto& [address, word] : words_within(liveness, half, half + kPool))
    EXPECT_EQ((word & PageLiveness::live_units) * 8, 2048) << "what is free of a pool in use is slack";
  EXPECT_EQ(live_in(empty), 0U);
  EXPECT_EQ(liveness.header.pymalloc_live_bytes, 1021U * 16U + 16U * 512U);
  ASSERT_EQ(liveness.pools.size(), 2U) << "in the third nothing lives";
  EXPECT_EQ(liveness.pools[0].address, full);
  EXPECT_EQ(liveness.pools[1].address, half);
  EXPECT_EQ(liveness.pools[1].block_bytes, 512U);
  for (const auto& [address, word] : words_within(liveness, arena.address(), first_pool + 4 * kPool)) {
    EXPECT_NE(word & PageLiveness::pymalloc, 0);
    const bool in_used_pool = address >= full && address < empty + kPool;
    EXPECT_EQ((word & PageLiveness::ever_held) != 0, in_used_pool) << address - arena.address();
  }
}

TEST(Pools, AreReadInTurn) {
  // Given more pools than are read in one turn, of which all but the last are known
  constexpr std::uint64_t kPool = 4096;
  constexpr std::size_t kPools = PoolReader::kInTurn + 100;
  const Region arena(kPools * kPool);
  std::vector<std::uint64_t> addresses;
  std::vector<std::uint16_t> words(kPools);
  std::vector<std::uint16_t*> pages;
  for (std::size_t i = 0; i < kPools; ++i) addresses.push_back(arena.address() + i * kPool);
  for (std::uint16_t& word : words) pages.push_back(&word);
  const auto fill = [&](std::uint32_t live_blocks) {
    const PoolHead head = pool_of(live_blocks, 64, kPool);
    for (const std::uint64_t address : addresses) std::memcpy(reinterpret_cast<void*>(address), &head, sizeof head);
  };
  const TargetMemory memory(getpid(), ForkCount{});
  PoolReader reader;
  const auto live_after = [&](std::size_t count, PoolReader::Extent extent) {
    const auto first = std::span(addresses).first(count);
    return reader.read(memory, kPool, first, std::span(pages).first(count), extent).live_bytes / 64;
  };
  fill(40);
  EXPECT_EQ(live_after(kPools - 1, PoolReader::Extent::in_turn), 40 * (kPools - 1));
  // When all of them change a little, then two turns tell of them, and each of the new ones too
  fill(41);
  const std::uint64_t after_one = live_after(kPools, PoolReader::Extent::in_turn);
  EXPECT_GE(after_one, 40 * kPools + kPools / 3);
  EXPECT_LT(after_one, 41 * kPools);
  EXPECT_TRUE(reader.left_some());
  EXPECT_EQ(live_after(kPools, PoolReader::Extent::in_turn), 41 * kPools);
  // When they change much, then all of them are read at once
  fill(3);
  EXPECT_EQ(live_after(kPools, PoolReader::Extent::in_turn), 3 * kPools);
  EXPECT_FALSE(reader.left_some());
  fill(4);
  EXPECT_EQ(live_after(kPools, PoolReader::Extent::all), 4 * kPools);
  EXPECT_FALSE(reader.left_some());
}

TEST(TargetMemory, ReadsManyPlacesAtOnceAlsoWhereSomeAreGone) {
  const Region region(4 * kLivenessPageBytes);
  std::vector<std::uint64_t> places;
  for (std::uint64_t i = 0; i < 1500; ++i) {
    places.push_back(region.address() + i * 8);
    std::memcpy(reinterpret_cast<void*>(places.back()), &i, sizeof i);
  }
  places[3] = places[700] = 16;  // nothing is mapped there
  for (const auto& lone : {std::optional<ForkCount>(), std::optional(ForkCount{})}) {
    const std::vector<std::byte> bytes = TargetMemory(getpid(), lone).read_each(places, 8);
    for (std::uint64_t i = 0; i < places.size(); ++i) {
      std::uint64_t value = 0;
      std::memcpy(&value, bytes.data() + i * 8, sizeof value);
      EXPECT_EQ(value, places[i] == 16 ? 0 : i);
    }
  }
}

Liveness random_liveness(std::mt19937& random, std::uint64_t walk_end_ns) {
  Liveness liveness;
  liveness.header.walk_end_ns = walk_end_ns;
  liveness.header.table_live_bytes = random();
  std::uint64_t at = 0x10000;
  for (auto i = random() % 5; i > 0; --i) {
    at += (1 + random() % 3) * kLivenessPageBytes;
    LivenessPages range{.start = at, .pages = std::vector<std::uint16_t>(1 + random() % 7)};
    for (auto& word : range.pages) word = static_cast<std::uint16_t>(PageLiveness::ever_held | random() % 513);
    at += range.pages.size() * kLivenessPageBytes;
    liveness.ranges.push_back(std::move(range));
  }
  return liveness;
}

std::vector<PageLife> lives_of(const std::vector<std::uint16_t>& words) {
  std::vector<PageLife> lives;
  for (const std::uint16_t word : words)
    lives.push_back({.live_bytes = static_cast<std::uint16_t>((word & PageLiveness::live_units) * 8),
                     .pymalloc = false,
                     .ever_held = true});
  return lives;
}

TEST(LivenessFrames, ReadAsTheyWereWritten) {
  // Given frames of a heap that changes from walk to walk, stored mostly as differences
  std::mt19937 random(1);
  LivenessFrames frames;
  LivenessReader reader;
  for (std::uint64_t walk = 1; walk <= 3 * LivenessFrames::kFramesPerWhole; ++walk) {
    const Liveness written = random_liveness(random, walk);
    // When they are read in order, then each has the pages that were written
    const auto read = reader.read(frames.encode(written));
    ASSERT_TRUE(read) << walk;
    EXPECT_EQ(read->walk_end_ns, walk);
    EXPECT_EQ(read->table_live_bytes, static_cast<std::int64_t>(written.header.table_live_bytes));
    ASSERT_EQ(read->pages.size(), written.ranges.size());
    for (std::size_t i = 0; i < written.ranges.size(); ++i) {
      EXPECT_EQ(read->pages[i].start, written.ranges[i].start);
      EXPECT_EQ(read->pages[i].pages, lives_of(written.ranges[i].pages));
    }
  }
}

TEST(LivenessFrames, AfterALostOneReadOnWithTheNextWholeOne) {
  std::mt19937 random(2);
  LivenessFrames frames;
  LivenessReader reader;
  std::vector<bool> readable;
  for (std::uint64_t walk = 1; walk <= LivenessFrames::kFramesPerWhole + 2; ++walk) {
    const auto payload = frames.encode(random_liveness(random, walk));
    if (walk != 3) readable.push_back(reader.read(payload).has_value());
  }
  const auto lost = static_cast<std::size_t>(LivenessFrames::kFramesPerWhole) - 3;  // 4 to 16 build on the lost one
  std::vector<bool> expected{true, true};
  expected.insert(expected.end(), lost, false);
  expected.insert(expected.end(), {true, true});
  EXPECT_EQ(readable, expected);
}

// Found by fuzzing: nothing may be read from where there is nothing.
TEST(LivenessFrames, ARangeOfNoPageIsNone) {
  std::mt19937 random(4);
  Liveness liveness = random_liveness(random, 1);
  liveness.ranges = {{.start = 0x20000, .pages = {}}};
  const auto read = LivenessReader().read(LivenessFrames().encode(liveness));
  ASSERT_TRUE(read);
  EXPECT_TRUE(read->pages.empty() || read->pages.front().pages.empty());
}

TEST(LivenessFrames, AreRefusedWhenDamaged) {
  std::mt19937 random(3);
  Liveness liveness = random_liveness(random, 1);
  liveness.ranges = {{.start = 0x20000, .pages = {1, 2, 3}}, {.start = 0x40000, .pages = {4}}};
  const auto payload = LivenessFrames().encode(liveness);
  // Cut anywhere
  for (std::size_t size = 0; size < payload.size(); ++size)
    EXPECT_FALSE(LivenessReader().read(Bytes(payload).first(size))) << size;
  // Ranges that overlap, that wrap around, with more live units than a page has
  const auto refused = [&](std::size_t at, auto value) {
    auto changed = payload;
    std::memcpy(changed.data() + at, &value, sizeof value);
    return !LivenessReader().read(changed).has_value();
  };
  constexpr std::size_t kFirst = sizeof(trace::LivenessHeader);
  EXPECT_TRUE(refused(kFirst, std::uint64_t{0x50000}));
  EXPECT_TRUE(refused(kFirst, std::uint64_t{0x20001}));
  EXPECT_TRUE(refused(kFirst, ~std::uint64_t{0xfff}));
  EXPECT_TRUE(refused(kFirst + 8, std::uint32_t{0xffffffff}));
  EXPECT_TRUE(refused(kFirst + sizeof(trace::LivenessRange), std::uint16_t{513}));
}

}  // namespace
}  // namespace whyrss::liveness_test
