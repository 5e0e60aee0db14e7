// The set of live small blocks against a plain map: random operations, copies, forgotten ranges.
#include "attribute/live_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace whyrss::live_set_test {
namespace {

using Model = std::unordered_map<std::uint64_t, LiveBlock>;

StackId stack_of_id(std::uint32_t id) { return StackId{id + 1}; }
StackId stack_of(std::uint64_t number) { return StackId{static_cast<std::uint32_t>(number)}; }

void expect_same(const LiveSet& set, const Model& model) {
  ASSERT_EQ(set.size(), model.size());
  std::size_t seen = 0;
  set.for_each([&](const LiveBlock& block) {
    ++seen;
    const auto found = model.find(block.address);
    ASSERT_NE(found, model.end());
    EXPECT_EQ(found->second, block);
  });
  EXPECT_EQ(seen, model.size());
}

TEST(LiveSet, AnswersAsAMapDoes) {
  for (const std::uint64_t spread : {200U, 5'000U, 1'000'000U}) {
    std::mt19937_64 random(spread);
    LiveSet set;
    Model model;
    std::map<std::uint64_t, StackId> last;
    for (std::uint32_t i = 0; i < 200'000; ++i) {
      const std::uint64_t address = 0x7f00'0000'0000 + random() % spread * 8;
      if (random() % 2 == 0) {
        const LiveBlock block{.address = address,
                              .size_bytes = static_cast<std::uint32_t>(random() % 32768),
                              .weight = static_cast<float>(random() % 100),
                              .stack = stack_of(i + 1)};
        const auto outcome = set.allocate(block);
        EXPECT_EQ(outcome == LiveSet::Outcome::replaced, model.contains(address));
        model[address] = block;
        last[address >> 12] = block.stack;
        const std::uint64_t end = block.weight == 1 && block.size_bytes > 4096 ? address + block.size_bytes : address;
        for (std::uint64_t page = (address >> 12) + 1; page << 12 < end; ++page) last[page] = block.stack;
      } else {
        LiveBlock released;
        const auto found = model.find(address);
        ASSERT_EQ(set.release(address, released), found != model.end());
        if (found == model.end()) continue;
        EXPECT_EQ(released, found->second);
        model.erase(found);
      }
    }
    expect_same(set, model);
    for (const auto& [page, stack] : last) EXPECT_EQ(set.last_on_page((page << 12) + 123), stack);
  }
}

struct Event {
  std::uint64_t address;
  std::uint32_t size_bytes, stack_id, release;
  [[nodiscard]] std::uint32_t released() const { return release; }
};

// Among the addresses are such as differ in their highest bits only, blocks that are samples, releases of nothing and
// blocks that take another's place; stacks of unknown number are not known at once.
TEST(LiveSet, PlaysEventsAsIfOneByOne) {
  constexpr std::size_t kAhead = 4;
  for (const std::uint64_t spread : {3U, 200U, 5'000U, 100'000U}) {
    std::mt19937_64 random(spread);
    LiveSet set;
    LiveSet slow;
    Model model;
    std::size_t played_count = 0;
    for (int round = 0; round < 300; ++round) {
      std::vector<Event> events(300 + kAhead);
      for (Event& event : events) {
        const std::uint64_t high = random() % 16 == 0 ? random() % 8 << 35 : 0;
        event = {.address = 0x1000 + high + random() % spread * 8,
                 .size_bytes = static_cast<std::uint32_t>(random() % 32768),
                 .stack_id = static_cast<std::uint32_t>(random() % 1000),
                 .release = static_cast<std::uint32_t>(random() % 2)};
        if (event.release != 0) event.size_bytes = 0xffffffff;
      }
      std::span<const Event> rest = std::span(std::as_const(events)).first(300);
      LiveBlock last_released, expected_released;
      const auto stack_of = [](std::uint32_t id, StackId& stack) {
        stack = stack_of_id(id);
        return id != 999;
      };
      while (!rest.empty()) {
        const std::size_t played = set.play(rest, kAhead, stack_of, last_released);
        played_count += played;
        for (std::size_t i = 0; i < std::min(played + 1, rest.size()); ++i) {
          const Event& event = rest[i];
          const float weight = i == played && random() % 4 == 0 ? 7 : 1;
          const LiveBlock block{.address = event.address,
                                .size_bytes = event.size_bytes,
                                .weight = weight,
                                .stack = stack_of_id(event.stack_id)};
          const auto found = model.find(event.address);
          if (event.release == 0) {
            if (i < played) {
              EXPECT_EQ(found, model.end());
            }
            if (i == played) set.allocate(block);
            slow.allocate(block);
            model[event.address] = block;
            continue;
          }
          if (i == played) set.release(event.address, last_released);
          slow.release(event.address, expected_released);
          if (found != model.end()) model.erase(found);
        }
        rest = rest.subspan(std::min(played + 1, rest.size()));
        ASSERT_EQ(last_released, expected_released);
      }
    }
    expect_same(set, model);
    EXPECT_GT(played_count, 1000U);
    for (std::uint64_t page = 0; page < spread * 8; page += 4096) {
      EXPECT_EQ(set.last_on_page(0x1000 + page), slow.last_on_page(0x1000 + page));
      EXPECT_EQ(set.last_kind_on_page(0x1000 + page).size_class, slow.last_kind_on_page(0x1000 + page).size_class);
    }
    set.forget(0, ~std::uint64_t{0});  // by the counts of live blocks on each page
    EXPECT_EQ(set.size(), 0U);
  }
}

TEST(LiveSet, ForgetsARange) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    LiveSet set;
    Model model;
    for (int i = 0; i < 300; ++i) {
      // In two places far apart.
      const std::uint64_t address = (i % 3 == 0 ? 0x10000000U : 0x5555'0000'0000U) + random() % 8000 * 8;
      const LiveBlock block{.address = address, .size_bytes = 8, .weight = 1, .stack = stack_of(7)};
      set.allocate(block);
      model[address] = block;
    }
    const std::uint64_t start = (round % 4 == 0 ? 0 : 0x5555'0000'0000U) + random() % 70000;
    const std::uint64_t end = round % 5 == 0 ? ~std::uint64_t{0} : start + random() % 70000;
    set.forget(start, end);
    std::erase_if(model, [&](const auto& entry) { return entry.first >= start && entry.first < end; });
    expect_same(set, model);
  }
}

TEST(LiveSet, ForgetsWhoAllocatedOnWholePagesOnly) {
  LiveSet set;
  for (std::uint64_t page = 0; page < 4; ++page)
    set.allocate({.address = 0x10000 + page * 4096, .size_bytes = 8, .weight = 1, .stack = stack_of(3)});
  set.forget(0x10000 + 8, 0x10000 + 3 * 4096 + 8);
  EXPECT_EQ(set.last_on_page(0x10000), stack_of(3));
  EXPECT_EQ(set.last_on_page(0x11000), kEmptyStack);
  EXPECT_EQ(set.last_on_page(0x12fff), kEmptyStack);
  EXPECT_EQ(set.last_on_page(0x13000), stack_of(3));
  EXPECT_EQ(set.size(), 1U);
  set.forget(5, 5);
  set.forget(6, 2);
  EXPECT_EQ(set.size(), 1U);
}

TEST(LiveSet, ACopyIsASnapshot) {
  LiveSet parent;
  for (std::uint64_t i = 1; i <= 1000; ++i)
    parent.allocate({.address = i * 64, .size_bytes = 48, .weight = 1, .stack = stack_of(i)});
  LiveSet child = parent;
  for (std::uint64_t i = 1; i <= 500; ++i) EXPECT_TRUE(child.release(i * 64));
  child.allocate({.address = 64 * 1000, .size_bytes = 8, .weight = 1, .stack = stack_of(5)});
  EXPECT_EQ(parent.size(), 1000U);
  EXPECT_EQ(child.size(), 500U);
  EXPECT_EQ(parent.last_on_page(64 * 1000), stack_of(1000));
  EXPECT_EQ(child.last_on_page(64 * 1000), stack_of(5));
  parent = child;
  EXPECT_EQ(parent.size(), 500U);
}

TEST(LiveSet, RefusesWhatNoAllocatorHandsOut) {
  LiveSet set;
  using Outcome = LiveSet::Outcome;
  for (const std::uint64_t address : {std::uint64_t{0}, std::uint64_t{12}, std::uint64_t{1} << 48, ~std::uint64_t{7}}) {
    EXPECT_EQ(set.allocate({.address = address, .size_bytes = 8, .weight = 1, .stack = {}}), Outcome::refused);
    EXPECT_FALSE(set.release(address));
    EXPECT_EQ(set.last_on_page(address), kEmptyStack);
  }
  EXPECT_EQ(set.allocate({.address = 8, .size_bytes = 1U << 19, .weight = 1, .stack = {}}), Outcome::refused);
  const std::uint64_t highest = (std::uint64_t{1} << 48) - 8;
  EXPECT_EQ(set.allocate({.address = highest, .size_bytes = 8, .weight = 1, .stack = stack_of(2)}), Outcome::added);
  EXPECT_EQ(set.allocate({.address = highest, .size_bytes = 16, .weight = 1, .stack = stack_of(3)}), Outcome::replaced);
  EXPECT_EQ(set.last_on_page(highest), stack_of(3));
  set.forget(0, ~std::uint64_t{0});
  EXPECT_EQ(set.size(), 0U);
  EXPECT_FALSE(set.release(highest));
}

}  // namespace
}  // namespace whyrss::live_set_test
