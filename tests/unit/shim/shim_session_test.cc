// The env-only way: the library starts the collector itself, and nobody notices.
#include <linux/futex.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "preload_harness.h"

namespace whyrss::testing {
namespace {

namespace fs = std::filesystem;
using trace::RecordKind;

// A prefix with lib/libwhyrss.so and, if wanted, bin/whyrss, as installed.
class Prefix {
 public:
  explicit Prefix(bool with_collector) {
    std::string name = (fs::temp_directory_path() / "whyrss-prefix-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) std::abort();
    root_ = name;
    fs::create_directories(root_ / "lib");
    fs::create_directories(root_ / "bin");
    fs::copy_file(WHYRSS_SHIM_FILE, root_ / "lib/libwhyrss.so");
    if (with_collector) fs::copy_file(WHYRSS_FAKE_COLLECTOR, root_ / "bin/whyrss");
  }
  Prefix(const Prefix&) = delete;
  Prefix& operator=(const Prefix&) = delete;
  ~Prefix() { fs::remove_all(root_); }

  Outcome run(Preloaded& preloaded, std::vector<std::string> arguments, std::vector<std::string> settings = {},
              bool subreaper = false) const {
    arguments.insert(arguments.begin(), WHYRSS_GUEST_BEHAVIOUR);
    settings.insert(settings.begin(), {"LD_PRELOAD=" + (root_ / "lib/libwhyrss.so").string(), "WHYRSS_SESSION=",
                                       "WHYRSS_OUTPUT=" + root_.string(), "FAKE_SESSION=" + preloaded.session()});
    return preloaded.run(arguments, "", settings, subreaper);
  }
  [[nodiscard]] std::string seen() const {
    std::ifstream file(root_ / "seen");
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  [[nodiscard]] std::string root() const { return root_.string(); }

 private:
  fs::path root_;
};

TEST(OwnCollector, IsStartedApartFromTheProgram) {
  const Prefix prefix(true);
  Preloaded preloaded;
  const Outcome outcome = prefix.run(preloaded, {"return", "4"});
  EXPECT_EQ(outcome.status, 4);
  EXPECT_EQ(outcome.output, "");
  ASSERT_EQ(outcome.of(RecordKind::attach).size(), 1U);
  const std::string seen = prefix.seen();
  EXPECT_NE(seen.find("preload=\n"), std::string::npos) << seen;
  EXPECT_NE(seen.find("session=(none)\n"), std::string::npos) << seen;
  EXPECT_NE(seen.find("own_session=1\n"), std::string::npos) << seen;
  EXPECT_NE(seen.find("stdout=/dev/null\n"), std::string::npos) << seen;
  const auto attach = outcome.of(RecordKind::attach)[0].as<trace::AttachRecord>();
  EXPECT_NE(seen.find("target=" + std::to_string(attach.pid) + "\n"), std::string::npos) << seen;
}

TEST(OwnCollector, ChildrenJoinTheSession) {
  const Prefix prefix(true);
  Preloaded preloaded;
  const Outcome outcome = prefix.run(preloaded, {"exec", WHYRSS_GUEST_BEHAVIOUR, "return", "4"});
  EXPECT_EQ(outcome.status, 4) << outcome.output;
  // The program, the forked child, its new image, the spawned program.
  EXPECT_EQ(outcome.of(RecordKind::attach).size(), 4U);
}

TEST(OwnCollector, LeavesDescriptorsAlone) {
  const Prefix prefix(true);
  Preloaded preloaded;
  EXPECT_EQ(prefix.run(preloaded, {"errno"}).status, 0);
}

class Reaper : public ::testing::TestWithParam<bool> {};

TEST_P(Reaper, NeverSeesTheCollector) {
  // Given a program that adopts orphans (or not), and so has the collector as a child
  const Prefix prefix(true);
  Preloaded preloaded;
  // When it waits for its children, then it meets its own and no other
  const Outcome outcome = prefix.run(preloaded, {"reaper"}, {}, GetParam());
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_GE(outcome.of(RecordKind::attach).size(), 2U);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Reaper, ::testing::Bool());

TEST(OwnCollector, MissingIsOneLine) {
  const Prefix prefix(false);
  Preloaded preloaded;
  const Outcome outcome = prefix.run(preloaded, {"return", "4"});
  EXPECT_EQ(outcome.status, 4);
  EXPECT_TRUE(outcome.output.starts_with("whyrss: no collector found")) << outcome.output;
  EXPECT_EQ(std::count(outcome.output.begin(), outcome.output.end(), '\n'), 1);
}

TEST(OwnCollector, ThatDiesAtOnceIsOneLine) {
  const Prefix prefix(true);
  Preloaded preloaded;
  const Outcome outcome = prefix.run(preloaded, {"return", "4"}, {"FAKE_SILENT=1"});
  EXPECT_EQ(outcome.status, 4);
  EXPECT_TRUE(outcome.output.starts_with("whyrss: the collector did not start")) << outcome.output;
}

TEST(OwnCollector, MayBeNamed) {
  const Prefix prefix(false);
  Preloaded preloaded;
  const Outcome outcome =
      prefix.run(preloaded, {"return", "4"}, {std::string("WHYRSS_COLLECTOR=") + WHYRSS_FAKE_COLLECTOR});
  EXPECT_EQ(outcome.status, 4);
  EXPECT_EQ(outcome.of(RecordKind::attach).size(), 1U);
}

// A shell that holds 8 MB when it ends: worth a last walk, which nobody takes here.
std::uint32_t walks_requested(std::uint32_t reader_life) {
  Preloaded preloaded;
  trace::PoolHeader& header = *preloaded.pool().header;
  header.reader_pid.store(1);
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  header.reader_beat_ns.store(static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000);
  header.reader_life.store(reader_life);
  const Outcome outcome = preloaded.run({"/bin/sh", "-c", "held=$(head -c 8000000 /dev/zero | tr '\\0' x); exit 4"});
  EXPECT_EQ(outcome.status, 4) << outcome.output;
  std::uint32_t requests = 0;
  for (const trace::ProcessSlot* slot : outcome.slots) requests += slot->walk_request.load();
  return requests;
}

TEST(FinalWalk, IsNotAskedOfADeadCollector) {
  EXPECT_GT(walks_requested(1), 0U);
  EXPECT_EQ(walks_requested(FUTEX_OWNER_DIED), 0U);
}

class AddressSpaceLimit : public ::testing::TestWithParam<int> {};

TEST_P(AddressSpaceLimit, NeverBreaksTheProgram) {
  Preloaded preloaded;
  const std::string limited =
      "ulimit -v " + std::to_string(GetParam()) + "; exec " + WHYRSS_GUEST_BEHAVIOUR + " return 5";
  const Outcome outcome = preloaded.run({"/bin/sh", "-c", limited});
  EXPECT_EQ(outcome.status, 5) << outcome.output;
  EXPECT_LE(std::count(outcome.output.begin(), outcome.output.end(), '\n'), 1) << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(KiB, AddressSpaceLimit, ::testing::Values(16000, 20000, 24000, 28000, 32000, 36000, 48000));

}  // namespace
}  // namespace whyrss::testing
