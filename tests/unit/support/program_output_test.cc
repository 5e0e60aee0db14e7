#include "support/program_output.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <string>

namespace whyrss::program_output_test {
namespace {

TEST(ProgramOutput, IsTheStatusAndTheFirstLineOfWhatEnds) {
  const auto output = run_program({"sh", "-c", "echo one; echo two >&2; exit 3"});
  ASSERT_TRUE(output);
  EXPECT_EQ(output->status, 3);
  EXPECT_EQ(output->first_line, "one");
  EXPECT_FALSE(run_program({"whyrss-no-such-program"}));
}

TEST(ProgramOutput, OfAProgramThatDoesNotEndIsAnErrorAndItIsKilled) {
  for (const std::string script : {"echo $$ >&3; exec sleep 600", "echo $$ >&3; exec >&- 2>&-; exec sleep 600"}) {
    const std::string file = testing::TempDir() + "program_output_test.pid";
    const auto output = run_program({"sh", "-c", "exec 3>'" + file + "'; " + script}, std::chrono::milliseconds(500));
    ASSERT_FALSE(output);
    EXPECT_EQ(output.error(), "sh did not end within 1 s");
    std::FILE* written = std::fopen(file.c_str(), "r");
    ASSERT_NE(written, nullptr);
    pid_t pid = 0;
    EXPECT_EQ(std::fscanf(written, "%d", &pid), 1);
    std::fclose(written);
    EXPECT_NE(kill(pid, 0), 0) << pid;
  }
}

}  // namespace
}  // namespace whyrss::program_output_test
