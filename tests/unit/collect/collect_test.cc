// The collector with a writer that stands for the shim: whatever the writer published is in the
// recording or still in the pool, once, in order, when either of them, or both, are killed.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "collect/loop/collector.h"
#include "collect/read/process_presence.h"
#include "file_tree.h"
#include "support/clock.h"
#include "support/text.h"

namespace whyrss::collect_test {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kPatienceNs = 20'000'000'000;

bool eventually(const std::function<bool()>& condition) {
  const std::int64_t deadline_ns = monotonic_ns() + kPatienceNs;
  while (monotonic_ns() < deadline_ns) {
    if (condition()) return true;
    usleep(5000);
  }
  return condition();
}

// What writer and test share.
struct Progress {
  std::atomic<std::uint64_t> published;
  std::atomic<bool> stop;
  std::atomic<bool> hold;  // the writer does not end before this is false
};

class Collect : public testing::Test {
 protected:
  void SetUp() override {
    progress_ = static_cast<Progress*>(
        mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    auto pool = PoolFile::create(session_, root_);
    ASSERT_TRUE(pool.ok()) << pool.error();
    pool_ = std::move(*pool);
  }
  void TearDown() override {
    for (const pid_t pid : {writer_, collector_})
      if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, nullptr, 0);
      }
    munmap(progress_, sizeof(Progress));
  }

  // Writes numbered marks, `pause_us` apart, until told to stop or `count` are there; then `at_end`.
  void start_writer(std::uint64_t count, unsigned pause_us, void (*at_end)(trace::Lease&)) {
    writer_ = fork();
    if (writer_ != 0) return;
    const auto pid = static_cast<std::uint32_t>(getpid());
    trace::Writer writer{.pool = pool_.view(), .pid = pid, .tid = pid, .start_ticks = *start_ticks_of(getpid())};
    writer.slot = trace::claim_slot(writer.pool, pid, writer.start_ticks);
    trace::Lease lease;
    for (std::uint64_t number = 0; number < count && !progress_->stop; ++number) {
      auto* record = reinterpret_cast<trace::TextRecord*>(reserve(writer, lease, sizeof(trace::TextRecord)));
      while (record == nullptr) {  // this test counts; a shim would drop
        usleep(1000);
        record = reinterpret_cast<trace::TextRecord*>(reserve(writer, lease, sizeof(trace::TextRecord)));
      }
      *record = {.header = {.size_bytes = sizeof(trace::TextRecord),
                            .kind = trace::RecordKind::mark,
                            .reserved = 0,
                            .time_ns = number},
                 .argument = 0,
                 .text_bytes = 0};
      publish(lease, sizeof(trace::TextRecord));
      progress_->published = number + 1;
      if (pause_us > 0) usleep(pause_us);
    }
    while (progress_->hold) usleep(1000);
    at_end(lease);
    _exit(0);
  }

  void start_collector(
      std::optional<rlim_t> file_limit = std::nullopt, const std::function<void()>& before = [] {}) {
    collector_ = fork();
    if (collector_ != 0) return;
    std::signal(SIGXFSZ, SIG_IGN);
    auto directory = make_recording_directory(root_ + "/rec", WhenTaken::refuse);
    if (!directory) _exit(9);
    before();
    if (file_limit) {
      const rlimit limit{.rlim_cur = *file_limit, .rlim_max = *file_limit};
      setrlimit(RLIMIT_FSIZE, &limit);
    }
    {
      Collector::Setup setup;
      setup.directory = std::move(*directory);
      setup.session = session_;
      setup.pool = std::move(pool_);
      setup.manifest.host = "host";
      setup.manifest.state = "recording";
      setup.manifest.started_ns = monotonic_ns();
      setup.target = writer_;
      Collector(std::move(setup)).run();
    }
    _exit(0);
  }

  static int reap(pid_t& pid) {
    int status = -1;
    const bool ended = eventually([&] { return waitpid(pid, &status, WNOHANG) == pid; });
    EXPECT_TRUE(ended) << "process " << pid << " does not end";
    if (ended) pid = 0;
    return status;
  }

  static FrameFile load(const std::string& path) {
    const auto text = read_file(path);
    EXPECT_TRUE(text.ok()) << path;
    if (!text) return {};
    auto file = parse_frame_file(std::as_bytes(std::span(*text)), path);
    EXPECT_TRUE(file.ok()) << path;
    return file ? std::move(*file) : FrameFile{};
  }

  std::vector<FrameFile> load_all(const std::string& name) {
    std::vector<FrameFile> files;
    for (const auto& entry : fs::directory_iterator(root_ + "/rec"))
      if (entry.is_directory()) files.push_back(load(entry.path().string() + "/" + name));
    return files;
  }

  static void take_numbers(std::uint64_t lease, std::uint32_t offset, std::span<const std::byte> bytes,
                           std::map<std::pair<std::uint64_t, std::uint32_t>, std::uint64_t>& numbers) {
    for (std::size_t at = 0; at + sizeof(trace::TextRecord) <= bytes.size(); at += sizeof(trace::TextRecord)) {
      trace::TextRecord record;
      std::memcpy(&record, bytes.data() + at, sizeof record);
      numbers.emplace(std::pair(lease, offset + static_cast<std::uint32_t>(at)), record.header.time_ns);
    }
  }

  // All numbers of the recording and of what is left in the pool, by place, so that twice is once.
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::uint64_t> stored_numbers(bool with_pool) {
    std::map<std::pair<std::uint64_t, std::uint32_t>, std::uint64_t> numbers;
    for (const FrameFile& file : load_all("events.zst"))
      for (const RawFrame& frame : file.frames) {
        std::span<const std::byte> rest = frame.payload;
        while (rest.size() >= sizeof(trace::SegmentHeader)) {
          trace::SegmentHeader header;
          std::memcpy(&header, rest.data(), sizeof header);
          rest = rest.subspan(sizeof header);
          take_numbers(header.lease, header.offset, rest.first(header.bytes), numbers);
          rest = rest.subspan(header.bytes);
        }
      }
    for (std::uint32_t index = 0; with_pool && index < pool_.view().header->chunk_count; ++index) {
      const trace::Segment segment = trace::next_segment(pool_.view(), index);
      if (!segment.bytes.empty()) take_numbers(segment.lease, segment.offset, segment.bytes, numbers);
    }
    return numbers;
  }

  void expect_all_published(bool with_pool) {
    const std::uint64_t published = progress_->published;
    std::set<std::uint64_t> seen;
    for (const auto& [place, number] : stored_numbers(with_pool)) EXPECT_TRUE(seen.insert(number).second) << number;
    // One more may have been published just before the kill, not yet counted.
    EXPECT_GE(seen.size(), published);
    EXPECT_LE(seen.size(), published + 1);
    if (!seen.empty()) {
      EXPECT_EQ(*seen.rbegin() + 1, seen.size());
    }
  }

  std::string state() {
    const auto text = read_file(root_ + "/rec/manifest.json");
    if (!text) return "absent";
    const auto manifest = parse_manifest(*text, "manifest");
    return manifest ? manifest->state : manifest.error();
  }

  static std::set<trace::FrameKind> kinds(const std::vector<FrameFile>& files) {
    std::set<trace::FrameKind> result;
    for (const FrameFile& file : files)
      for (const RawFrame& frame : file.frames) result.insert(frame.kind);
    return result;
  }

  // Of one mark, as the process that calls it.
  void publish_full_chunk() {
    const auto pid = static_cast<std::uint32_t>(getpid());
    trace::Writer writer{.pool = pool_.view(), .pid = pid, .tid = pid, .start_ticks = *start_ticks_of(getpid())};
    writer.slot = trace::claim_slot(writer.pool, pid, writer.start_ticks);
    trace::Lease lease;
    const trace::TextRecord record{
        .header = {.size_bytes = sizeof record, .kind = trace::RecordKind::mark, .reserved = 0, .time_ns = 1},
        .argument = 0,
        .text_bytes = 0};
    std::memcpy(reserve(writer, lease, sizeof record), &record, sizeof record);
    publish(lease, sizeof record);
    trace::seal(lease);
    ++progress_->published;
  }

  // Of the walks that are stored so far.
  std::set<trace::WalkTrigger> triggers() {
    std::set<trace::WalkTrigger> result;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(root_ + "/rec", error)) {
      const auto text = read_file(entry.path().string() + "/pages.zst");
      if (!text) continue;
      const auto file = parse_frame_file(std::as_bytes(std::span(*text)), "pages");
      if (!file) continue;
      for (const RawFrame& frame : file->frames) {
        if (frame.kind != trace::FrameKind::walk) continue;
        trace::WalkHeader header;
        std::memcpy(&header, frame.payload.data(), sizeof header);
        result.insert(header.trigger);
      }
    }
    return result;
  }

  static void seal_it(trace::Lease& lease) { trace::seal(lease); }
  static void leave_it(trace::Lease&) {}

  FileTree tree_;
  const std::string& root_ = tree_.path();
  Progress* progress_ = nullptr;
  // Pools are named after it, and tests run side by side.
  const trace::SessionId session_{.high = 0x1122334455667788, .low = static_cast<std::uint64_t>(getpid())};
  PoolFile pool_;
  pid_t writer_ = 0, collector_ = 0;
};

TEST_F(Collect, StoresEverythingInOrderAndCompletes) {
  // A collector that starts late finds a program that has ended: it has its events, but no page.
  progress_->hold = true;
  start_writer(20'000, 5, seal_it);
  start_collector();
  EXPECT_TRUE(eventually([&] { return !triggers().empty(); }));
  progress_->hold = false;
  reap(writer_);
  EXPECT_EQ(reap(collector_), 0);
  EXPECT_EQ(state(), "complete");
  const auto numbers = stored_numbers(false);
  ASSERT_EQ(numbers.size(), 20'000U);
  std::uint64_t expected = 0;
  for (const auto& [place, number] : numbers) ASSERT_EQ(number, expected++);
  EXPECT_FALSE(fs::exists(pool_.path()));
  using trace::FrameKind;
  const auto seen = kinds(load_all("pages.zst"));
  for (const auto kind : {FrameKind::walk, FrameKind::smaps, FrameKind::polls, FrameKind::process, FrameKind::ended,
                          FrameKind::status, FrameKind::counters})
    EXPECT_TRUE(seen.contains(kind)) << static_cast<int>(kind);
}

TEST_F(Collect, ListsItsFilesWithTheirFrames) {
  start_writer(20'000, 5, seal_it);
  start_collector();
  reap(writer_);
  EXPECT_EQ(reap(collector_), 0);
  const auto manifest = parse_manifest(*read_file(root_ + "/rec/manifest.json"), "manifest");
  ASSERT_TRUE(manifest.ok() && manifest->processes);
  EXPECT_TRUE(manifest->is_sound);
  ASSERT_EQ(manifest->processes->size(), 1U);
  const ClosedProcess& process = manifest->processes->front();
  EXPECT_EQ(process.events_frames, load(root_ + "/rec/" + process.directory + "/events.zst").frames.size());
  EXPECT_EQ(process.pages_frames, load(root_ + "/rec/" + process.directory + "/pages.zst").frames.size());
  EXPECT_GT(process.events_frames, 0U);
}

TEST_F(Collect, IsNotCompleteWithoutAProcessWhoseFilesCouldNotBeMade) {
  start_writer(1000, 5, seal_it);
  start_collector(std::nullopt, [this] {
    const std::string name = fmt::format("host.{}.{}", writer_, *start_ticks_of(writer_));
    std::ofstream(root_ + "/rec/" + name) << "no directory";
  });
  reap(writer_);
  EXPECT_EQ(reap(collector_), 0);
  EXPECT_TRUE(state().starts_with("incomplete: ")) << state();
  const auto log = read_file(root_ + "/rec/collector.log");
  ASSERT_TRUE(log.ok());
  EXPECT_NE(log->find("could not be written"), std::string::npos) << *log;
  const auto manifest = parse_manifest(*read_file(root_ + "/rec/manifest.json"), "manifest");
  ASSERT_TRUE(manifest.ok() && manifest->processes);
  EXPECT_TRUE(manifest->is_sound);
  ASSERT_EQ(manifest->processes->size(), 1U);
  EXPECT_FALSE(manifest->processes->front().events_frames || manifest->processes->front().pages_frames);
  ASSERT_EQ(manifest->write_faults.size(), 1U);
  EXPECT_EQ(manifest->write_faults[0].events, 1000);
}

TEST_F(Collect, KeepsAllOfAWriterThatIsKilledInTheMiddleOfAChunk) {
  start_writer(UINT64_MAX, 10, leave_it);
  start_collector();
  ASSERT_TRUE(eventually([&] { return progress_->published > 5000; }));
  kill(writer_, SIGKILL);
  reap(writer_);
  EXPECT_EQ(reap(collector_), 0);
  EXPECT_EQ(state(), "complete");
  expect_all_published(false);
  for (std::uint32_t index = 0; index < pool_.view().header->chunk_count; ++index) {
    const auto state = pool_.view().chunks[index].state.load();
    EXPECT_TRUE(state == trace::ChunkState::free || state == trace::ChunkState::bare) << index;
  }
}

TEST_F(Collect, LosesNothingWhenItIsKilledItself) {
  start_writer(UINT64_MAX, 10, leave_it);
  start_collector();
  ASSERT_TRUE(eventually([&] { return progress_->published > 20'000; }));
  kill(collector_, SIGKILL);
  reap(collector_);
  progress_->stop = true;
  reap(writer_);
  EXPECT_EQ(state(), "recording");
  expect_all_published(true);
}

TEST_F(Collect, LosesNothingWhenBothAreKilled) {
  start_writer(UINT64_MAX, 10, leave_it);
  start_collector();
  ASSERT_TRUE(eventually([&] { return progress_->published > 20'000; }));
  kill(writer_, SIGKILL);
  kill(collector_, SIGKILL);
  reap(writer_);
  reap(collector_);
  expect_all_published(true);
}

TEST_F(Collect, StoresTheFewEventsOfAQuietProgramWithinSeconds) {
  start_writer(3, 0, [](trace::Lease&) { pause(); });
  start_collector();
  EXPECT_TRUE(eventually([&] { return fs::exists(root_ + "/rec") && stored_numbers(false).size() == 3; }));
}

TEST_F(Collect, ServesALook) {
  start_writer(1, 0, [](trace::Lease&) { pause(); });
  start_collector();
  const trace::PoolView pool = pool_.view();
  trace::ProcessSlot* slot = nullptr;
  ASSERT_TRUE(eventually([&] {
    for (std::uint32_t i = 0; i < pool.header->slot_count && slot == nullptr; ++i)
      if (pool.slots[i].state == trace::SlotState::live) slot = &pool.slots[i];
    return slot != nullptr;
  }));
  slot->walk_request.fetch_add(1);
  trace::ring_doorbell(pool);
  EXPECT_TRUE(eventually([&] { return slot->walk_done == slot->walk_request; }));
  EXPECT_GT(slot->walked_rss_pages.load(), 0U);
}

TEST_F(Collect, DoesNotStoreAWalkAsInTimeThatWasTakenBack) {
  start_writer(1, 0, [](trace::Lease&) { pause(); });
  ASSERT_TRUE(eventually([&] { return progress_->published == 1; }));
  const trace::PoolView pool = pool_.view();
  const auto slot = std::find_if(pool.slots, pool.slots + pool.header->slot_count,
                                 [](const auto& one) { return one.state == trace::SlotState::live; });
  ASSERT_NE(slot, pool.slots + pool.header->slot_count);
  slot->walk_request = 1;
  slot->walk_done = 1;
  start_collector();
  ASSERT_TRUE(eventually([&] { return triggers().contains(trace::WalkTrigger::growth); }));
  EXPECT_FALSE(triggers().contains(trace::WalkTrigger::request));
  slot->walk_request.fetch_add(1);
  trace::ring_doorbell(pool);
  EXPECT_TRUE(eventually([&] { return slot->walk_done == 2; }));
  EXPECT_TRUE(eventually([&] { return triggers().contains(trace::WalkTrigger::request); }));
}

TEST_F(Collect, KnowsTheParentOfAChildWhoseEventsComeFirst) {
  // Given full chunks of both before the collector begins, and nothing that tells of the fork
  writer_ = fork();
  if (writer_ == 0) {
    publish_full_chunk();
    const pid_t child = fork();
    if (child == 0) publish_full_chunk();
    while (!progress_->stop) usleep(5000);
    if (child > 0) waitpid(child, nullptr, 0);
    _exit(0);
  }
  ASSERT_TRUE(eventually([&] { return progress_->published == 2; }));
  start_collector();
  // Then the child is walked as one of a fork.
  EXPECT_TRUE(eventually([&] { return triggers().contains(trace::WalkTrigger::fork); }));
  progress_->stop = true;
  reap(writer_);
  EXPECT_EQ(reap(collector_), 0);
  EXPECT_EQ(load_all("pages.zst").size(), 2U);
}

TEST_F(Collect, FollowsNoChildThatHadEndedBeforeItWasSeen) {
  writer_ = fork();
  if (writer_ == 0) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    siginfo_t info{};
    waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
    progress_->published = 1;
    usleep(1'000'000);
    _exit(0);
  }
  ASSERT_TRUE(eventually([&] { return progress_->published == 1; }));
  start_collector();
  reap(writer_);
  EXPECT_EQ(reap(collector_), 0);
  EXPECT_EQ(load_all("pages.zst").size(), 1U);
}

TEST_F(Collect, SaysSoWhenTheLastEventsFindNoRoom) {
  start_writer(200'000, 0, seal_it);
  start_collector(24 * 1024);
  reap(writer_);
  EXPECT_EQ(reap(collector_), 0);
  EXPECT_TRUE(state().starts_with("incomplete")) << state();
  for (const FrameFile& file : load_all("events.zst")) EXPECT_EQ(file.damaged_bytes, 0U);
  // Which frames find room depends on how much was there when each was drained; none is stored in part,
  // and those that are not there are counted.
  const auto numbers = stored_numbers(false);
  std::optional<std::uint64_t> before;
  for (const auto& [place, number] : numbers) {
    ASSERT_TRUE(!before || number > *before) << number;
    before = number;
  }
  const auto manifest = parse_manifest(*read_file(root_ + "/rec/manifest.json"), "manifest");
  ASSERT_TRUE(manifest.ok());
  std::int64_t missing = 0;
  for (const WriteFault& fault : manifest->write_faults) missing += fault.events;
  EXPECT_EQ(static_cast<std::int64_t>(numbers.size()) + missing, 200'000);
}

TEST_F(Collect, FollowsAProgramWithoutTheShimAndItsChildren) {
  writer_ = fork();
  if (writer_ == 0) {
    const pid_t child = fork();
    usleep(1'500'000);
    if (child > 0) waitpid(child, nullptr, 0);
    _exit(0);
  }
  start_collector();
  reap(writer_);
  EXPECT_EQ(reap(collector_), 0);
  EXPECT_EQ(state(), "complete");
  const auto files = load_all("pages.zst");
  EXPECT_EQ(files.size(), 2U);
  for (const FrameFile& file : files) EXPECT_TRUE(kinds({file}).contains(trace::FrameKind::walk));
  // Whoever shares pages by fork is summed up with its relatives.
  for (const FrameFile& file : files) EXPECT_TRUE(kinds({file}).contains(trace::FrameKind::rollup));
}

}  // namespace
}  // namespace whyrss::collect_test
