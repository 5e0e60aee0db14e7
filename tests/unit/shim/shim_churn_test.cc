// A program with threads, forks and signals does the same with the library as without, under every allocator.
#include <cstdio>
#include <filesystem>
#include <string>

#include "preload_harness.h"

namespace whyrss::testing {
namespace {

const std::string kProgram = std::string(WHYRSS_PROGRAMS_DIR) + "/churn";
constexpr const char* kRounds = "6000";

std::string output_without_us() {
  std::FILE* pipe = popen((kProgram + " " + kRounds).c_str(), "r");
  std::string output(256, '\0');
  output.resize(std::fread(output.data(), 1, output.size(), pipe));
  EXPECT_EQ(pclose(pipe), 0);
  return output;
}

class Churn : public ::testing::TestWithParam<const char*> {};

TEST_P(Churn, DoesTheSame) {
  std::string allocator;
  if (*GetParam() != '\0') {
    allocator = std::string(WHYRSS_ALLOCATOR_DIR) + "/" + GetParam();
    if (!std::filesystem::exists(allocator)) GTEST_SKIP() << allocator << " is not installed";
  }
  Preloaded preloaded;
  const Outcome outcome = preloaded.run({kProgram, kRounds}, allocator, {"WHYRSS_OPTS=sample_bytes=64KiB"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.output, output_without_us());
  EXPECT_GT(outcome.events.size() + outcome.dropped, 1000U);
}

INSTANTIATE_TEST_SUITE_P(Allocators, Churn,
                         ::testing::Values("", "libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libmimalloc.so.2"));

}  // namespace
}  // namespace whyrss::testing
