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

}  // namespace
}  // namespace whyrss::phase_edge_test
