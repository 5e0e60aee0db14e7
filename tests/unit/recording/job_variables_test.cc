// What is read of a process's environment.
#include "recording/job_variables.h"

#include <gtest/gtest.h>

namespace whyrss::job_variables_test {
namespace {

using namespace std::string_literals;

TEST(PreloadOf, SaysWhoseLibrariesItNames) {
  EXPECT_EQ(preload_of(""), "none") << "env -i";
  EXPECT_EQ(preload_of("PATH=/bin\0HOME=/\0"s), "none");
  EXPECT_EQ(preload_of("LD_PRELOAD=/lib/libother.so\0"s), "other");
  EXPECT_EQ(preload_of("A=1\0LD_PRELOAD=/lib/libwhyrss.so:/lib/libother.so\0"s), "own");
}

TEST(PreloadOf, IsNotKnownWhereATitleStandsInItsPlace) {
  EXPECT_EQ(preload_of(std::string(1354, '\0')), "");
  EXPECT_EQ(preload_of("worker [idle]\0\0\0\0"s), "");
}

}  // namespace
}  // namespace whyrss::job_variables_test
