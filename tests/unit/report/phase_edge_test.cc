// Which walk of a process stands for the edge of a phase.
#include <gtest/gtest.h>

#include "literal_accounts.h"
#include "report/view/interval.h"

namespace whyrss::phase_edge_test {
namespace {

// Born at `born_s`, first walked at 1.1 s, of a phase that begins at 1 s.
double begin_for(double born_s) {
  ProcessAccount process = literal::python_process(7, {"python3"});
  process.born_s = born_s;
  process.accounts.push_back(literal::walk(1.1, {{Cause::heap_live, 40}}));
  return interval_of(process, {.from_s = 1, .to_s = 2, .from_phase = true, .to_phase = true}).from_s;
}

TEST(PhaseEdge, AProcessThatThePhaseStartedBeginsWithNothing) {
  EXPECT_EQ(begin_for(1.05), 1);
  EXPECT_EQ(begin_for(0.993), 1);  // the kernel's time of its birth is up to a hundredth too early
  EXPECT_EQ(begin_for(0.5), 1.1);  // it was there: its first walk is the state that is known
}

// Both edges were walked only after the phase, which freed what the walk before it had seen.
TEST(PhaseEdge, AWalkAfterAShortPhaseIsNotItsBegin) {
  ProcessAccount process = literal::python_process(7, {"python3"});
  process.accounts.push_back(literal::walk(0.985, {{Cause::heap_live, 80}}));
  process.accounts.push_back(literal::walk(1.006, {{Cause::heap_live, 40}}));
  const Interval interval = interval_of(process, {.from_s = 1, .to_s = 1.005, .from_phase = true, .to_phase = true});
  EXPECT_EQ(interval.from_s, 1);
  EXPECT_EQ(interval.to_s, 1.006);
}

// Walked 2 ms before the edge during a fast load, and 9 ms after it, when the process waited.
TEST(PhaseEdge, TheWalkForWhichTheProcessWaitedIsItsEdge) {
  ProcessAccount process = literal::python_process(7, {"python3"});
  process.accounts.push_back(literal::walk(0.998, {{Cause::heap_live, 80}}));
  process.accounts.push_back(literal::walk(1.009, {{Cause::heap_live, 84}}));
  const auto begin_of = [&](int pid) {
    return interval_of(process, {.from_s = 1, .to_s = 2, .from_phase = true, .from_pid = pid}).from_s;
  };
  EXPECT_EQ(begin_of(7), 1);  // that it was asked for is not known
  process.accounts.back().asked = true;
  EXPECT_EQ(begin_of(7), 1.009);
  EXPECT_EQ(begin_of(8), 1);             // the phase of another one, for which this one did not wait
  process.accounts.back().time_s = 1.3;  // too late: it had gone on
  EXPECT_EQ(begin_of(7), 1);
}

}  // namespace
}  // namespace whyrss::phase_edge_test
