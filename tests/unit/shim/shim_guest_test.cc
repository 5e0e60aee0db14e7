// The library as a guest: what the program does works as without it, and is seen.
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>

#include "file_tree.h"
#include "preload_harness.h"

namespace whyrss::testing {
namespace {

using trace::RecordKind;

constexpr std::uint64_t kMiB = 1 << 20;

Outcome run_guest(Preloaded& preloaded, std::vector<std::string> arguments,
                  const std::vector<std::string>& extra = {}) {
  arguments.insert(arguments.begin(), WHYRSS_GUEST_BEHAVIOUR);
  Outcome outcome = preloaded.run(arguments, "", extra);
  EXPECT_EQ(outcome.dropped, 0U);
  return outcome;
}

bool is_map_of(const Event& event, std::uint64_t size_bytes) {
  const auto map = event.as<trace::MapRecord>();
  return event.kind() == RecordKind::map && map.size_bytes == size_bytes && map.origin == trace::MapOrigin::program;
}

std::size_t maps_of(const Outcome& outcome, std::uint64_t size_bytes) {
  return static_cast<std::size_t>(
      std::ranges::count_if(outcome.events, [&](const Event& event) { return is_map_of(event, size_bytes); }));
}

TEST(Guest, AttachSaysWhoItIs) {
  Preloaded preloaded;
  const Outcome outcome = run_guest(preloaded, {"return", "5"});
  EXPECT_EQ(outcome.status, 5);
  const std::vector<Event> attached = outcome.of(RecordKind::attach);
  ASSERT_EQ(attached.size(), 1U);
  const auto attach = attached[0].as<trace::AttachRecord>();
  EXPECT_EQ(attach.born, trace::Born::exec);
  EXPECT_EQ(attach.allocator, trace::Allocator::glibc);
  const auto* tail = reinterpret_cast<const char*>(attached[0].bytes.data()) + sizeof(attach);
  EXPECT_EQ(std::string(tail, attach.exe_bytes), WHYRSS_GUEST_BEHAVIOUR);
  EXPECT_LT(attach.own_start, attach.own_end);
  const std::vector<Event> left = outcome.of(RecordKind::exit);
  ASSERT_EQ(left.size(), 1U);
  EXPECT_EQ(left[0].as<trace::ProcessRecord>().status, 5);
}

TEST(Guest, ExitByUnderscoreExitIsRecordedOnce) {
  Preloaded preloaded;
  const Outcome outcome = run_guest(preloaded, {"status", "6"});
  EXPECT_EQ(outcome.status, 6);
  ASSERT_EQ(outcome.of(RecordKind::exit).size(), 1U);
  EXPECT_EQ(outcome.of(RecordKind::exit)[0].as<trace::ProcessRecord>().status, 6);
}

class Ends : public ::testing::TestWithParam<std::tuple<const char*, std::size_t, std::size_t>> {};

TEST_P(Ends, AreReportedBeforeAnythingIsDestroyed) {
  const auto [how, process_count, map_count] = GetParam();
  Preloaded preloaded;
  const Outcome outcome = run_guest(preloaded, {"end", how});
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  const std::vector<Event> torn_down = outcome.of(RecordKind::teardown);
  ASSERT_EQ(torn_down.size(), process_count);
  EXPECT_EQ(maps_of(outcome, kMiB), map_count);
  for (const Event& teardown : torn_down) {
    EXPECT_EQ(teardown.as<trace::ProcessRecord>().status & trace::Teardown::process, trace::Teardown::process);
    for (const Event& event : outcome.events) {
      const bool at_end = event.pid == teardown.pid && is_map_of(event, kMiB);
      EXPECT_TRUE(!at_end || teardown.header().time_ns < event.header().time_ns);
    }
  }
  EXPECT_EQ(outcome.of(RecordKind::exit).size(), process_count);
}

// pthread_exit() in main runs no destructor of its thread_local objects; nor does exit() in another thread.
INSTANTIATE_TEST_SUITE_P(How, Ends,
                         ::testing::Values(std::tuple("return", 1U, 4U), std::tuple("exit", 1U, 4U),
                                           std::tuple("handler", 1U, 4U), std::tuple("signal", 1U, 4U),
                                           std::tuple("thread", 1U, 3U), std::tuple("pthread_exit", 1U, 4U),
                                           std::tuple("last_thread", 1U, 3U), std::tuple("fork", 2U, 8U)),
                         [](const auto& how) { return std::string(std::get<0>(how.param)); });

TEST(Guest, VforkChildMayCallDeeplyBeforeExec) {
  Preloaded preloaded;
  const Outcome outcome = run_guest(preloaded, {"vfork", WHYRSS_GUEST_BEHAVIOUR, "return", "0"});
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(outcome.of(RecordKind::spawn).size(), 20U);
  EXPECT_EQ(outcome.of(RecordKind::exec).size(), 0U);  // not the parent's
  EXPECT_EQ(outcome.of(RecordKind::attach).size(), 21U);
}

TEST(Guest, RawMemorySystemCallsAreSeen) {
  Preloaded preloaded;
  const Outcome outcome = run_guest(preloaded, {"syscall"});
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(maps_of(outcome, 3 * kMiB), 1U);
  ASSERT_EQ(outcome.of(RecordKind::remap).size(), 1U);
  EXPECT_EQ(outcome.of(RecordKind::remap)[0].as<trace::RemapRecord>().new_size_bytes, 5 * kMiB);
  ASSERT_EQ(outcome.of(RecordKind::unmap).size(), 1U);
}

TEST(Guest, AddressSpaceCallsAreSeen) {
  Preloaded preloaded;
  const Outcome outcome = run_guest(preloaded, {"maps"});
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(maps_of(outcome, kMiB), 2U);  // mmap and shmat
  EXPECT_EQ(outcome.of(RecordKind::advise).size(), 1U);
  EXPECT_EQ(outcome.of(RecordKind::protect).size(), 1U);
  EXPECT_EQ(outcome.of(RecordKind::remap).size(), 1U);
  EXPECT_EQ(outcome.of(RecordKind::unmap).size(), 2U);                   // munmap and shmdt
  const std::vector<Event> files = outcome.of(RecordKind::shared_file);  // of shmat and memfd_create
  ASSERT_EQ(files.size(), 2U);
  EXPECT_EQ(files[0].as<trace::SharedFileRecord>().device_minor, 0U);
  EXPECT_NE(files[1].as<trace::SharedFileRecord>().device_minor, 0U);
  EXPECT_NE(files[1].as<trace::SharedFileRecord>().inode, 0U);
  const std::vector<Event> moved = outcome.of(RecordKind::break_moved);
  ASSERT_EQ(moved.size(), 2U);
  const auto up = moved[0].as<trace::RangeRecord>();
  const auto down = moved[1].as<trace::RangeRecord>();
  EXPECT_EQ(up.address, up.size_bytes + kMiB);
  EXPECT_EQ(down.address, up.size_bytes);
}

TEST(Guest, FilesOfSharedMemoryThatAreMadeOrEmptiedAreSeen) {
  Preloaded preloaded;
  const FileTree folder;
  const Outcome outcome = run_guest(preloaded, {"opens", folder.path()});
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(outcome.of(RecordKind::shared_file).size(), 12U);
}

class Forks : public ::testing::TestWithParam<const char*> {};

TEST_P(Forks, ChildSaysWhatItInherited) {
  Preloaded preloaded;
  const Outcome outcome = run_guest(preloaded, {GetParam()});
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  const std::vector<Event> attached = outcome.of(RecordKind::attach);
  ASSERT_EQ(attached.size(), 2U);
  const auto parent = attached[0].as<trace::AttachRecord>();
  const auto child = attached[1].as<trace::AttachRecord>();
  EXPECT_EQ(child.born, trace::Born::fork);
  EXPECT_EQ(child.parent_pid, parent.pid);
  EXPECT_NE(child.pid, parent.pid);
  // The 4 MiB vector is among the inherited pages.
  std::uint64_t block = 0;
  for (const Event& event : outcome.of(RecordKind::allocate))
    if (event.pid == parent.pid && event.as<trace::BlockRecord>().size_bytes >= 4 * kMiB)
      block = event.as<trace::BlockRecord>().address;
  ASSERT_NE(block, 0U);
  std::uint64_t covered = 0;
  bool complete = false;
  for (const Event& event : outcome.of(RecordKind::inherited)) {
    EXPECT_EQ(event.pid, child.pid);
    const auto record = event.as<trace::InheritedRecord>();
    complete = record.complete == 1;
    for (std::uint32_t index = 0; index < record.run_count; ++index) {
      trace::PageRun run{};
      std::memcpy(&run, event.bytes.data() + sizeof(record) + index * sizeof(run), sizeof(run));
      const std::uint64_t start = std::max(run.start, block & ~std::uint64_t{4095});
      const std::uint64_t end = std::min(run.start + run.page_count * 4096, block + 4 * kMiB);
      if (start < end) covered += end - start;
    }
  }
  EXPECT_TRUE(complete);
  EXPECT_GE(covered, 4 * kMiB);
  // The child's own block is the child's.
  bool own = false;
  for (const Event& event : outcome.of(RecordKind::allocate)) own = own || event.pid == child.pid;
  EXPECT_TRUE(own);
  EXPECT_EQ(outcome.of(RecordKind::exit).size(), 2U);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Forks, ::testing::Values("fork", "raw_fork"));

TEST(Guest, ForkChildWhoseParentHasEndedNamesIt) {
  Preloaded preloaded;
  const Outcome outcome = run_guest(preloaded, {"orphan"});
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  const std::vector<Event> attached = outcome.of(RecordKind::attach);
  ASSERT_EQ(attached.size(), 3U);
  EXPECT_EQ(attached[2].as<trace::AttachRecord>().parent_pid, attached[1].as<trace::AttachRecord>().pid);
}

TEST(Guest, ForkIsRecordedInTheParent) {
  Preloaded preloaded;
  const Outcome outcome = run_guest(preloaded, {"fork"});
  const std::vector<Event> forks = outcome.of(RecordKind::fork);
  ASSERT_EQ(forks.size(), 1U);
  EXPECT_EQ(forks[0].as<trace::ProcessRecord>().pid, outcome.of(RecordKind::attach)[1].as<trace::AttachRecord>().pid);
}

TEST(Guest, ErrnoAndDescriptorsStay) {
  Preloaded preloaded;
  const Outcome outcome = run_guest(preloaded, {"errno"});
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(outcome.of(RecordKind::release_undone).size(), 1U);
}

TEST(Guest, ExceptionsPassAndLeaveNothingBehind) {
  Preloaded preloaded;
  const Outcome outcome = run_guest(preloaded, {"exceptions"});
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  std::size_t allocated = 0;
  for (const Event& event : outcome.marked()) allocated += event.kind() == RecordKind::allocate ? 1 : 0;
  EXPECT_EQ(allocated, 1U);
}

TEST(Guest, ThreadsExitAndCancelAsAlways) {
  Preloaded preloaded;
  const Outcome outcome = run_guest(preloaded, {"threads"});
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  const std::vector<Event> threads = outcome.of(RecordKind::thread);
  EXPECT_EQ(threads.size(), 108U);
  for (const Event& event : threads) {
    const auto thread = event.as<trace::ThreadRecord>();
    EXPECT_EQ(thread.tid, event.tid);
    EXPECT_LT(thread.stack_pointer, thread.thread_pointer);
  }
  const std::vector<Event> creators = outcome.of(RecordKind::thread_creator);
  EXPECT_EQ(creators.size(), 108U);
  for (const Event& event : creators) {
    EXPECT_EQ(event.as<trace::ThreadCreatorRecord>().tid, event.tid);
    EXPECT_EQ(event.as<trace::ThreadCreatorRecord>().creator_tid, outcome.slots.at(0)->pid);
  }
}

TEST(Guest, WaitForAnyChildIsUnchanged) {
  Preloaded preloaded;
  EXPECT_EQ(run_guest(preloaded, {"reaper"}).status, 0);
}

// A kernel may refuse 32-bit programs: the shell then takes such a one for a script.
bool does_run(const std::string& program) {
  const pid_t child = fork();
  if (child == 0) {
    execl(program.c_str(), program.c_str(), nullptr);
    _exit(errno == ENOEXEC ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0;
}

class Targets : public ::testing::TestWithParam<std::tuple<const char*, bool>> {};

TEST_P(Targets, StartAsWithoutUs) {
  const auto [program, keeps_preload] = GetParam();
  const std::string path = std::string(WHYRSS_PROGRAMS_DIR) + "/" + program;
  if (access(path.c_str(), X_OK) != 0) GTEST_SKIP() << program << " could not be built on this machine";
  if (std::string_view(program) == "hello_32bit" && !does_run(path))
    GTEST_SKIP() << "this kernel runs no 32-bit programs";
  Preloaded preloaded;
  const Outcome outcome = run_guest(preloaded, {"exec", path});
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  const std::string line = std::string("hello, LD_PRELOAD=") + (keeps_preload ? WHYRSS_SHIM_FILE : "(none)") + "\n";
  EXPECT_EQ(outcome.output, line + line);
  EXPECT_EQ(outcome.of(RecordKind::note).size(), keeps_preload ? 0U : 2U);
}

INSTANTIATE_TEST_SUITE_P(Programs, Targets,
                         ::testing::Values(std::tuple("hello_plain", true), std::tuple("hello_static", true),
                                           std::tuple("hello_32bit", false), std::tuple("hello_musl", false),
                                           std::tuple("hello_musl_script", false)));

TEST(Guest, FailedExecIsTakenBack) {
  Preloaded preloaded;
  const Outcome outcome = run_guest(preloaded, {"exec", "/nonexistent/program"});
  EXPECT_EQ(outcome.status, 97);
  EXPECT_EQ(outcome.of(RecordKind::exec).size(), 1U);
  EXPECT_EQ(outcome.of(RecordKind::exec_failed).size(), 1U);
}

TEST(Guest, APluginBringsOperatorNewAndItsExceptions) {
  Preloaded preloaded;
  const std::string programs = WHYRSS_PROGRAMS_DIR;
  const Outcome outcome = preloaded.run({programs + "/c_host", programs + "/cxx_plugin.so"});
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  std::size_t allocated = 0;
  std::size_t released = 0;
  for (const Event& event : outcome.marked()) {
    allocated += event.kind() == RecordKind::allocate ? 1 : 0;
    released += event.kind() == RecordKind::release ? 1 : 0;
  }
  EXPECT_EQ(allocated, 2U);
  EXPECT_EQ(released, 2U);
}

TEST(Guest, FirstMallocMayComeUnderTheLocaleLock) {
  Preloaded preloaded;
  const Outcome outcome = preloaded.run({std::string(WHYRSS_PROGRAMS_DIR) + "/early_host"});
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(outcome.of(RecordKind::attach).size(), 1U);
}

struct Mistake {
  const char* setting;
  const char* says;
};

class Mistakes : public ::testing::TestWithParam<Mistake> {};

TEST_P(Mistakes, AreOneLineAndTheJobRuns) {
  Preloaded preloaded;
  const Outcome outcome = run_guest(preloaded, {"return", "3"}, {GetParam().setting});
  EXPECT_EQ(outcome.status, 3);
  EXPECT_TRUE(outcome.output.starts_with("whyrss: ")) << outcome.output;
  EXPECT_NE(outcome.output.find(GetParam().says), std::string::npos) << outcome.output;
  EXPECT_EQ(std::count(outcome.output.begin(), outcome.output.end(), '\n'), 1) << outcome.output;
  EXPECT_TRUE(outcome.events.empty());
}

INSTANTIATE_TEST_SUITE_P(
    Settings, Mistakes,
    ::testing::Values(Mistake{"WHYRSS_OPTS=colour=red", "colour"}, Mistake{"WHYRSS_OPTS=mode=fast", "mode=fast"},
                      Mistake{"WHYRSS_SESSION=123", "WHYRSS_SESSION"},
                      Mistake{"WHYRSS_SESSION=0123456789abcdeffedcba9876543210:/bin/true", "/bin/true"}));

TEST(Guest, AttachSaysHowBlocksAreRecorded) {
  struct Case {
    const char* setting;
    trace::Mode mode;
    std::uint64_t sample_bytes;
    std::uint32_t has_liveness;
  };
  for (const Case& asked : {Case{"WHYRSS_OPTS=mode=sampled,sample_bytes=65536,touch=auto,liveness=on,unwinder=auto",
                                 trace::Mode::sampled, 64 << 10, 1},
                            Case{"WHYRSS_OPTS=sample_bytes=1MiB,liveness=off", trace::Mode::sampled, 1 << 20, 0},
                            Case{"WHYRSS_OPTS=mode=exact", trace::Mode::exact, 0, 1}}) {
    Preloaded preloaded;
    const Outcome outcome = run_guest(preloaded, {"return", "0"}, {asked.setting});
    ASSERT_EQ(outcome.of(RecordKind::attach).size(), 1U);
    const auto attach = outcome.of(RecordKind::attach)[0].as<trace::AttachRecord>();
    EXPECT_EQ(attach.mode, asked.mode) << asked.setting;
    EXPECT_EQ(attach.sample_bytes, asked.sample_bytes) << asked.setting;
    EXPECT_EQ(attach.has_liveness, asked.has_liveness) << asked.setting;
    EXPECT_TRUE(outcome.of(RecordKind::note).empty()) << asked.setting;
  }
}

TEST(Guest, ARecordingThatIsOverIsNoMistake) {
  Preloaded preloaded;
  const Outcome outcome =
      run_guest(preloaded, {"return", "3"}, {"WHYRSS_SESSION=0123456789abcdeffedcba9876543210:/dev/shm/whyrss-none"});
  EXPECT_EQ(outcome.status, 3);
  EXPECT_EQ(outcome.output, "");
}

TEST(Guest, AFullPoolDropsAndCounts) {
  Preloaded preloaded;
  // Given a pool without a free chunk
  preloaded.pool().header->free_head.store(0);
  const Outcome outcome = preloaded.run({WHYRSS_GUEST_BEHAVIOUR, "many_blocks"});
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_GE(outcome.dropped, 6000U);
  EXPECT_TRUE(outcome.events.empty());
}

}  // namespace
}  // namespace whyrss::testing
