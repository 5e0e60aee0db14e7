// The library where there is little room: small stacks, borrowed memory, other users, other roots.
#include <filesystem>
#include <string>

#include "preload_harness.h"

namespace whyrss::testing {
namespace {

using trace::RecordKind;

Outcome run_tight(Preloaded& preloaded, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), std::string(WHYRSS_PROGRAMS_DIR) + "/tight_places");
  return preloaded.run(arguments);
}

std::string program(const char* name) { return std::string(WHYRSS_PROGRAMS_DIR) + "/" + name; }

bool says(const Outcome& outcome, const std::string& words) {
  for (const Event& event : outcome.of(RecordKind::note))
    if (event.text().find(words) != std::string::npos) return true;
  return false;
}

TEST(TightPlaces, TheSmallestThreadMayStartPrograms) {
  Preloaded preloaded;
  const Outcome outcome = run_tight(preloaded, {"small_stack", "/bin/true"});
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(outcome.output, "");
  EXPECT_EQ(outcome.of(RecordKind::attach).size(), 1U + 2U + 5U);  // itself, two forks, five programs
}

TEST(TightPlaces, TheSmallestThreadMayStartWhatWeKeepOutOf) {
  if (access(program("hello_musl").c_str(), X_OK) != 0) GTEST_SKIP() << "hello_musl could not be built here";
  Preloaded preloaded;
  const Outcome outcome = run_tight(preloaded, {"small_stack", program("hello_musl")});
  EXPECT_EQ(outcome.status, 0) << outcome.output;
}

TEST(TightPlaces, VforkedProgramsLeaveNothingInTheParent) {
  if (access(program("hello_musl").c_str(), X_OK) != 0) GTEST_SKIP() << "hello_musl could not be built here";
  Preloaded preloaded;
  const Outcome outcome = run_tight(preloaded, {"vfork_often", program("hello_musl")});
  EXPECT_EQ(outcome.status, 0) << outcome.output;
}

// Nobody can open the pool: the program starts without us and without a word.
TEST(TightPlaces, AnotherUserStartsProgramsAsWithoutUs) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  Preloaded preloaded;
  const Outcome outcome = run_tight(preloaded, {"as_nobody", "/bin/echo", "as nobody"});
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(outcome.output, "as nobody\n");
  EXPECT_TRUE(says(outcome, "another user, who cannot open the recording: /bin/echo"));
}

// A child whose pid is only by chance the collector's is not kept from the program.
TEST(TightPlaces, PidsOfAnotherNamespaceAreNotMistaken) {
  Preloaded preloaded;
  preloaded.pool().header->reader_pid.store(2);
  const Outcome outcome = run_tight(preloaded, {"own_pids", "-"});
  if (outcome.status == 77) GTEST_SKIP() << "pid namespaces are not allowed here";
  EXPECT_EQ(outcome.status, 0) << outcome.output;
}

// The library is not there behind a chroot: the loader would print an error.
TEST(TightPlaces, AnotherRootStartsProgramsAsWithoutUs) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can change its root";
  const std::filesystem::path root =
      std::filesystem::temp_directory_path() / ("whyrss-root-" + std::to_string(getpid()));
  const std::string libc = "lib/x86_64-linux-gnu/libc.so.6";
  std::filesystem::create_directories(root / "lib64");
  std::filesystem::create_directories((root / libc).parent_path());
  std::filesystem::copy("/lib64/ld-linux-x86-64.so.2", root / "lib64/ld-linux-x86-64.so.2");
  std::filesystem::copy("/" + libc, root / libc);
  std::filesystem::copy(program("hello_plain"), root / "hello");
  Preloaded preloaded;
  const Outcome outcome = run_tight(preloaded, {"in_root", root.string(), "/hello"});
  std::filesystem::remove_all(root);
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(outcome.output, "hello, LD_PRELOAD=(none)\n");
  EXPECT_TRUE(says(outcome, "cannot be reached by it (chroot, another user): /hello"));
}

}  // namespace
}  // namespace whyrss::testing
