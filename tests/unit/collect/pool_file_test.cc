// The file behind the pool, and how its reader dies.
#include "collect/start/pool_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "file_tree.h"

namespace whyrss::pool_file_test {
namespace {

// Whether others see that a reader is dead: when it has become one, and after signal `number`.
std::pair<bool, bool> is_seen_dead(int number) {
  const FileTree tree;
  const auto pool = PoolFile::create({.high = 1, .low = static_cast<std::uint64_t>(getpid())}, tree.path());
  EXPECT_TRUE(pool.ok());
  const pid_t reader = fork();
  if (reader == 0) {
    pool->become_reader();
    raise(SIGSTOP);
    _exit(0);
  }
  int status = 0;
  waitpid(reader, &status, WUNTRACED);
  const trace::PoolHeader& header = *pool->view().header;
  EXPECT_EQ(header.reader_pid.load(), static_cast<std::uint32_t>(reader));
  const bool before = trace::is_reader_dead(header);
  kill(reader, number);
  kill(reader, SIGCONT);
  waitpid(reader, &status, 0);
  return {before, trace::is_reader_dead(header)};
}

TEST(PoolReader, IsKnownToBeDeadHoweverItDied) {
  for (const int number : {SIGKILL, SIGSEGV, 0 /* none: it leaves by itself */})
    EXPECT_EQ(is_seen_dead(number), std::pair(false, true)) << number;
}

}  // namespace
}  // namespace whyrss::pool_file_test
