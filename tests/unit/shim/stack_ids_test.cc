// Ids of stacks: each one that was stored is found, however many there are.
#include "shim/stacks/stack_ids.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

#include "shim/events/own_memory_events.h"
#include "shim/observe/observe.h"
#include "shim/trace/trace_format.h"

namespace whyrss::shim {

// The shim reports its tables to the trace; here there is none.
void report_own_memory(ThreadState& /*thread*/, const void* /*memory*/, std::size_t /*size_bytes*/) noexcept {}

namespace {

std::vector<std::uint64_t> hashes(std::size_t count) {
  std::mt19937_64 random(11);
  std::vector<std::uint64_t> all(count);
  for (std::uint64_t& hash : all) hash = random();
  return all;
}

// As stack_capture.cc does. False: there is no room.
bool store(StackIds& ids, std::uint64_t hash, std::uint32_t id) {
  ThreadState thread;
  StackIds::Found found = ids.find(hash);
  EXPECT_EQ(found.id, trace::kNoStack);
  if (found.room == nullptr && ids.grow(thread)) found = ids.find(hash);
  ids.store(hash, id, found.room);
  return found.room != nullptr;
}

TEST(StackIds, FindsMoreStacksThanItsFirstLevelHolds) {
  auto ids = std::make_unique<StackIds>();
  ThreadState thread;
  ids->start(thread);
  const std::vector<std::uint64_t> all = hashes(300'000);
  for (std::size_t i = 0; i < all.size(); ++i) ASSERT_TRUE(store(*ids, all[i], static_cast<std::uint32_t>(i + 1)));
  for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(ids->find(all[i]).id, i + 1);
}

TEST(StackIds, IsEmptyAfterEmpty) {
  auto ids = std::make_unique<StackIds>();
  ThreadState thread;
  ids->start(thread);
  const std::vector<std::uint64_t> all = hashes(100'000);
  for (std::size_t i = 0; i < all.size(); ++i) ASSERT_TRUE(store(*ids, all[i], static_cast<std::uint32_t>(i + 1)));
  ids->empty();
  for (const std::uint64_t hash : all) ASSERT_EQ(ids->find(hash).id, trace::kNoStack);
}

TEST(StackIds, AnIdThatComesLateIsNotTakenForAnothers) {
  auto ids = std::make_unique<StackIds>();
  ThreadState thread;
  ids->start(thread);
  StackIds::Slot* room = ids->find(0x1234'0000'0000'0001).room;
  ASSERT_NE(room, nullptr);
  ids->store(0x1234'0000'0000'0001, 7, room);
  ids->empty();
  room->hash = 0x1234'0000'0000'0002;               // stored anew, its id not yet
  room->id = std::uint64_t{0x0000'0001} << 32 | 7;  // the late one
  EXPECT_EQ(ids->find(0x1234'0000'0000'0002).id, trace::kNoStack);
}

}  // namespace
}  // namespace whyrss::shim
