// The limit under which `prove` runs a command again: above what it holds, below its file cache.
#include <gtest/gtest.h>

#include "cli/prove_rerun.h"
#include "literal_accounts.h"

namespace whyrss::prove_limit_test {
namespace {

using literal::kMiB;

Slice slice(Cause cause, std::int64_t mib) {
  Slice part;
  part.site.cause = cause;
  part.bytes = mib * kMiB;
  return part;
}

Account account(double time_s, const std::vector<Slice>& slices) {
  Account made;
  made.time_s = time_s;
  made.slices = slices;
  for (const Slice& part : slices) made.rss_bytes += part.bytes;
  return made;
}

TEST(PlanLimit, LeavesRoomForWhatIsHeldAndAPartOfTheFileCache) {
  RecordingAccount recording;
  recording.processes.resize(1);
  recording.processes[0].accounts = {account(1, {slice(Cause::heap_live, 40)}),
                                     account(2, {slice(Cause::heap_live, 20), slice(Cause::file_cache, 400)})};
  const LimitPlan plan = plan_limit(recording);
  EXPECT_EQ(plan.held_bytes, 40 * kMiB);
  EXPECT_EQ(plan.file_bytes, 400 * kMiB);
  EXPECT_GT(plan.limit_bytes, plan.held_bytes + plan.file_bytes / 8);
  EXPECT_LT(plan.limit_bytes, plan.file_bytes / 2);
}

TEST(PlanLimit, CountsProcessesOnlyWhileTheyLiveAndForkSharedMemoryOnce) {
  RecordingAccount recording;
  recording.processes.resize(3);
  recording.processes[0].accounts = {account(1, {slice(Cause::heap_live, 100)})};
  for (const std::size_t worker : {1U, 2U}) {
    const double born_s = worker == 1 ? 2 : 5;
    recording.processes[worker].accounts = {
        account(born_s, {slice(Cause::fork_shared, 100), slice(Cause::fork_cow, 30)})};
    recording.processes[worker].ended_s = born_s + 1;
  }
  EXPECT_EQ(plan_limit(recording).held_bytes, 130 * kMiB);
  EXPECT_EQ(plan_limit(recording).file_bytes, 0);
}

// It was in use before, perhaps at no walk.
TEST(PlanLimit, CountsWhatWasGivenUpAsHeld) {
  RecordingAccount recording;
  recording.processes.resize(1);
  recording.processes[0].accounts = {account(1, {slice(Cause::heap_live, 40), slice(Cause::lazy_free, 20)})};
  EXPECT_EQ(plan_limit(recording).held_bytes, 60 * kMiB);
}

TEST(PlanLimit, OfNothingIsLittle) {
  const LimitPlan plan = plan_limit(RecordingAccount{});
  EXPECT_EQ(plan.held_bytes, 0);
  EXPECT_EQ(plan.file_bytes, 0);
}

}  // namespace
}  // namespace whyrss::prove_limit_test
