// A recording that is not what its collector closed is never called complete: each kind of damage is named with the
// file, and what is left is used as far as it is certain.
#include "load/recording_check.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "load/load.h"
#include "recording_builder.h"

namespace whyrss::recording_check_test {
namespace {

using namespace testing_support;
using trace::FrameKind;

namespace fs = std::filesystem;

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kHeap = 0x20000000;
constexpr const char* kWhy = "some of its files are damaged or missing";

ByteVector walk_of(std::uint64_t at_s, std::uint32_t pages) {
  constexpr std::uint32_t kOwn = trace::PageBits::present | trace::PageBits::exclusive;
  return walk(at_s * kSecond, {{.start = kHeap, .path = "[heap]", .runs = {{kOwn, pages}}}});
}

// The header of a file and its frames, as they stand there.
struct Cut {
  std::string header;
  std::vector<std::string> frames;

  explicit Cut(const std::string& path) {
    const std::string bytes = read_file(path).ok() ? *read_file(path) : std::string();
    header = bytes.substr(0, sizeof(trace::FileHeader));
    for (std::size_t at = header.size(); at < bytes.size();) {
      trace::FrameHeader frame{};
      std::memcpy(&frame, bytes.data() + at, sizeof frame);
      frames.push_back(bytes.substr(at, sizeof frame + frame.stored_bytes));
      at += frames.back().size();
    }
  }
  void write(const std::string& path) const {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << header;
    for (const std::string& frame : frames) file << frame;
  }
};

// Of two processes: 100 with six walks in six frames, 101 with two.
class RecordingCheckTest : public testing::Test {
 protected:
  void SetUp() override {
    std::vector<std::pair<FrameKind, ByteVector>> walks;
    for (std::uint32_t i = 0; i < 6; ++i) walks.emplace_back(FrameKind::walk, walk_of(2 + i, 10 * (i + 1)));
    recording_.add(100,
                   {segment(1, 0, attach(kSecond, 100, 1, trace::Born::exec)),
                    segment(2, 0, process_record(trace::RecordKind::fork, 3 * kSecond, 101))},
                   walks);
    recording_.add(101, {segment(3, 0, attach(3 * kSecond, 101, 100, trace::Born::fork))},
                   {{FrameKind::walk, walk_of(4, 7)}, {FrameKind::walk, walk_of(5, 8)}});
    recording_.write_manifest();
  }

  RecordingAccount load() const {
    auto account = load_account(recording_.path());
    EXPECT_TRUE(account.ok()) << account.error();
    return account ? std::move(*account) : RecordingAccount{};
  }

  // Not complete, and says this of the recording, and nothing else.
  void expect_named(const std::vector<std::string>& notes) const {
    const RecordingAccount account = load();
    EXPECT_FALSE(account.info.complete);
    EXPECT_EQ(account.info.incomplete_why, kWhy);
    EXPECT_EQ(account.info.notes, notes);
  }

  static std::vector<std::int64_t> walked_bytes(const RecordingAccount& recording, std::size_t index) {
    std::vector<std::int64_t> bytes;
    for (const Account& account : recording.processes.at(index).accounts) bytes.push_back(account.rss_bytes);
    return bytes;
  }
  static std::vector<std::int64_t> pages(const std::vector<std::int64_t>& counts) {
    std::vector<std::int64_t> bytes;
    for (const std::int64_t count : counts) bytes.push_back(count * 4096);
    return bytes;
  }

  [[nodiscard]] std::string path(std::uint32_t pid, const char* file) const {
    return recording_.process_directory(pid) + "/" + file;
  }

  TestRecording recording_;
};

TEST_F(RecordingCheckTest, AWholeRecordingIsComplete) {
  const RecordingAccount account = load();
  EXPECT_TRUE(account.info.complete);
  EXPECT_TRUE(account.info.notes.empty());
  EXPECT_EQ(walked_bytes(account, 0), pages({10, 20, 30, 40, 50, 60}));
}

TEST_F(RecordingCheckTest, AFrameThatWasCutOut) {
  Cut cut(path(100, "pages.zst"));
  cut.frames.erase(cut.frames.begin() + 2);
  cut.write(path(100, "pages.zst"));
  expect_named({"node.a.100.7/pages.zst: frame 3 of 6 is missing"});
  EXPECT_EQ(walked_bytes(load(), 0), pages({10, 20, 40, 50, 60}));
}

TEST_F(RecordingCheckTest, SeveralGaps) {
  Cut cut(path(100, "pages.zst"));
  cut.frames.erase(cut.frames.begin() + 3, cut.frames.begin() + 5);
  cut.frames.erase(cut.frames.begin());
  cut.write(path(100, "pages.zst"));
  expect_named({"node.a.100.7/pages.zst: frames 1, 4 to 5 of 6 are missing"});
}

TEST_F(RecordingCheckTest, AFileThatWasCutBetweenTwoFrames) {
  Cut cut(path(100, "pages.zst"));
  for (std::size_t kept = 6; kept-- > 0;) {
    cut.frames.resize(kept);
    cut.write(path(100, "pages.zst"));
    expect_named({kept == 5 ? "node.a.100.7/pages.zst: frame 6 of 6 is missing"
                            : fmt::format("node.a.100.7/pages.zst: frames {} to 6 of 6 are missing", kept + 1)});
  }
}

TEST_F(RecordingCheckTest, FramesOutOfOrderArePutInOrder) {
  Cut cut(path(100, "pages.zst"));
  std::swap(cut.frames[1], cut.frames[4]);
  cut.write(path(100, "pages.zst"));
  expect_named({"node.a.100.7/pages.zst: frame 3 stood behind a later one"});
  EXPECT_EQ(walked_bytes(load(), 0), pages({10, 20, 30, 40, 50, 60}));
}

TEST_F(RecordingCheckTest, ADoubledFrameCountsOnce) {
  for (const bool at_end : {false, true}) {
    Cut cut(path(101, "pages.zst"));
    cut.frames.insert(at_end ? cut.frames.end() : cut.frames.begin(), std::string(cut.frames.front()));
    cut.write(path(101, "pages.zst"));
    const RecordingAccount account = load();
    EXPECT_FALSE(account.info.complete);
    ASSERT_EQ(account.info.notes.size(), 1U);
    EXPECT_TRUE(
        account.info.notes[0].starts_with("node.a.101.7/pages.zst: 1 of its frames stood there twice and was "
                                          "used once"))
        << account.info.notes[0];
    EXPECT_EQ(walked_bytes(account, 1), pages({7, 8}));
    cut.frames.erase(at_end ? cut.frames.end() - 1 : cut.frames.begin());
    cut.write(path(101, "pages.zst"));
  }
}

TEST_F(RecordingCheckTest, AFrameOfAnotherFileIsDamage) {
  const Cut other(path(101, "pages.zst"));
  Cut cut(path(100, "pages.zst"));
  cut.frames[1] = other.frames[1];  // the same number and kind
  cut.write(path(100, "pages.zst"));
  expect_named({fmt::format("node.a.100.7/pages.zst: {} bytes are damaged and were skipped; frame 2 of 6 is missing",
                            other.frames[1].size())});
  EXPECT_EQ(walked_bytes(load(), 0), pages({10, 30, 40, 50, 60}));
}

TEST_F(RecordingCheckTest, AFlippedByteNamesTheFrame) {
  Cut cut(path(100, "pages.zst"));
  const std::size_t size = cut.frames[3].size();
  for (std::size_t at = 0; at < size; ++at) {
    std::string& frame = cut.frames[3];
    frame[at] = static_cast<char>(frame[at] ^ 4);
    cut.write(path(100, "pages.zst"));
    expect_named(
        {fmt::format("node.a.100.7/pages.zst: {} bytes are damaged and were skipped; frame 4 of 6 is missing", size)});
    frame[at] = static_cast<char>(frame[at] ^ 4);
  }
}

TEST_F(RecordingCheckTest, FramesThatItsCollectorDidNotWrite) {
  recording_.manifest.processes.reset();
  Manifest& manifest = recording_.manifest;
  manifest.processes = {{"node.a.100.7", 2, 4}, {"node.a.101.7", 1, 2}};
  std::ofstream(recording_.path() + "/manifest.json") << render_manifest(manifest);
  expect_named({"node.a.100.7/pages.zst: it had 2 more frames than its writer counted, which were left out"});
  EXPECT_EQ(walked_bytes(load(), 0), pages({10, 20, 30, 40}));
}

TEST_F(RecordingCheckTest, AnEmptyFile) {
  fs::resize_file(path(100, "events.zst"), 0);
  expect_named({path(100, "events.zst") + " is no whyrss recording file: it has only 0 bytes"});
}

TEST_F(RecordingCheckTest, AMissingFile) {
  fs::remove(path(101, "pages.zst"));
  expect_named({"node.a.101.7/pages.zst: missing"});
}

TEST_F(RecordingCheckTest, ADeletedProcess) {
  fs::remove_all(recording_.process_directory(101));
  expect_named({"node.a.101.7: missing, with all that was recorded of this process"});
  fs::remove_all(recording_.process_directory(100));
  expect_named({"node.a.100.7: missing, with all that was recorded of this process",
                "node.a.101.7: missing, with all that was recorded of this process"});
}

TEST_F(RecordingCheckTest, FilesThatCouldNotBeMade) {
  Manifest& manifest = recording_.manifest;
  manifest.processes = {{"node.a.100.7", 2, 6}, {"node.a.101.7", 1, std::nullopt}};
  std::ofstream(recording_.path() + "/manifest.json") << render_manifest(manifest);
  expect_named({"node.a.101.7/pages.zst: it had 2 more frames than its writer counted, which were left out"});
  fs::remove(path(101, "pages.zst"));
  expect_named({"node.a.101.7/pages.zst: could not be made"});
  manifest.processes = {{"node.a.100.7", 2, 6}, {"node.a.101.7", std::nullopt, std::nullopt}};
  std::ofstream(recording_.path() + "/manifest.json") << render_manifest(manifest);
  fs::remove_all(recording_.process_directory(101));
  expect_named({"node.a.101.7: its files could not be made, nothing was recorded of this process"});
}

TEST_F(RecordingCheckTest, APlantedProcessIsNotUsed) {
  fs::copy(recording_.process_directory(101), recording_.process_directory(102));
  expect_named({"node.a.102.7: is none of the processes of this recording, and was left out"});
  EXPECT_EQ(load().processes.size(), 2U);
}

TEST_F(RecordingCheckTest, FilesOfAnotherProcessOrKindAreNotUsed) {
  fs::copy_file(path(101, "pages.zst"), path(100, "pages.zst"), fs::copy_options::overwrite_existing);
  expect_named({"node.a.100.7/pages.zst: is of another recording or process, and was left out"});
  EXPECT_TRUE(walked_bytes(load(), 0).empty());
  fs::copy_file(path(100, "events.zst"), path(100, "pages.zst"), fs::copy_options::overwrite_existing);
  expect_named({"node.a.100.7/pages.zst: is of another recording or process, and was left out"});
}

TEST_F(RecordingCheckTest, AFileOfAnotherRecordingIsNotUsed) {
  fs::remove(path(101, "pages.zst"));
  auto writer = FrameWriter::create(
      path(101, "pages.zst"),
      {.kind = trace::FileKind::pages, .session = {.high = 1, .low = 2}, .pid = 101, .start_ticks = 7});
  ASSERT_TRUE(writer.ok());
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(writer->append(FrameKind::walk, 1, walk_of(4, 700)).ok());
  expect_named({"node.a.101.7/pages.zst: is of another recording or process, and was left out"});
  EXPECT_TRUE(walked_bytes(load(), 1).empty());
}

TEST_F(RecordingCheckTest, AnEditedManifest) {
  const std::string file = recording_.path() + "/manifest.json";
  std::string text = *read_file(file);
  const std::size_t at = text.find("\"started_ns\": 1");
  ASSERT_NE(at, std::string::npos);
  text[at + std::strlen("\"started_ns\": ")] = '2';
  std::ofstream(file) << text;
  expect_named({"manifest.json: it was changed after it was written"});
}

TEST_F(RecordingCheckTest, AManifestWithoutItsList) {
  recording_.manifest.processes.reset();
  std::ofstream(recording_.path() + "/manifest.json") << render_manifest(recording_.manifest);
  expect_named({"manifest.json: it does not say which processes were recorded"});
}

TEST_F(RecordingCheckTest, GapsAreNamedWhereTheCollectorWasKilled) {
  recording_.manifest.state = "recording";
  recording_.manifest.processes.reset();
  recording_.write_manifest();
  Cut cut(path(100, "pages.zst"));
  cut.frames.pop_back();  // nobody counted them
  cut.write(path(100, "pages.zst"));
  EXPECT_TRUE(load().info.notes.empty());
  EXPECT_EQ(load().info.incomplete_why, "the collector was killed");
  cut.frames.erase(cut.frames.begin() + 1);
  cut.write(path(100, "pages.zst"));
  EXPECT_EQ(load().info.notes, std::vector<std::string>{"node.a.100.7/pages.zst: frame 2 is missing"});
  EXPECT_EQ(load().info.incomplete_why, "the collector was killed");
}

TEST_F(RecordingCheckTest, ManyMissingProcessesAreCounted) {
  std::vector<ClosedProcess> many;
  for (int i = 0; i < 1000; ++i) many.push_back({fmt::format("node.a.{}.8", 200 + i), 1, 1});
  recording_.manifest.processes = many;
  std::ofstream(recording_.path() + "/manifest.json") << render_manifest(recording_.manifest);
  const auto notes = load().info.notes;
  EXPECT_EQ(notes.size(), 201U);
  EXPECT_EQ(notes.back(), "and 802 more files");  // with the two that are not listed
}

}  // namespace
}  // namespace whyrss::recording_check_test
