// A forked child that stops itself where it wants to be walked.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

namespace whyrss::testing_support {

inline void wait_until_stopped(pid_t pid) {
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, WUNTRACED), pid);
  ASSERT_TRUE(WIFSTOPPED(status));
}

}  // namespace whyrss::testing_support
