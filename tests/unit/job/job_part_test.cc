// Parts: what is kept of a recording, that it is bounded, and that nothing damaged is read.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "job/index_codec.h"
#include "job/recording_codec.h"
#include "job/reduce.h"
#include "literal_accounts.h"
#include "made_parts.h"
#include "report/view/build_view.h"

namespace whyrss::job_part_test {
namespace {

ReducedRecording reduced(RecordingAccount recording) {
  recording.info.boot_id = "b";
  recording.info.version = "0.1.0";
  recording.info.started_monotonic_ns = 5;
  const View view = build_view(recording, whole_life(recording));
  return reduce(view, find_verdicts(view));
}

TEST(JobPart, AllFieldsComeBack) {
  ReducedRecording recording = made::recording(3, 20 * made::kMiB);
  recording.incomplete_why = "it was never closed";
  recording.complete = false;
  recording.oom_killed = true;
  recording.exit_code = -1;
  recording.exit_signal = "SIGKILL";
  recording.lost_events = 3;
  recording.lost_snapshots = 4;
  recording.group_path = "/sys/fs/cgroup/job";
  recording.group_limit = 1 << 30;
  recording.group_peak = 12345;
  ReducedProcess& process = recording.processes.front();
  process.born_ms = -5;
  process.ended_ms = 1999;
  process.end_signal = "SIGTERM";
  process.born_by_fork = process.oom_killed = true;
  process.local_rank = 0;
  process.world_size = 4608;
  process.pss_peak = 77;
  process.copied = 9;
  process.causes[0] = {Cause::file_cache, 1, 2, 3, 4, 5, 6, -7, 8, 9, 10};
  process.moments.push_back({900, process.moments.front().bytes});
  process.moments.back().bytes[5] -= 100;
  const auto decoded = decode_recording(encode_recording(recording));
  ASSERT_TRUE(decoded.ok()) << decoded.error();
  EXPECT_EQ(*decoded, recording);
  const PartIndex index{{"12", "node[1-3]"}, {make_block(recording).entry}};
  EXPECT_EQ(*decode_index(encode_index(index)), index);
}

// The figures are those that the JSON report has.
TEST(JobPart, KeepsTheFiguresOfTheView) {
  const RecordingAccount recording = literal::quickstart();
  const View view = build_view(recording, whole_life(recording));
  const ReducedRecording kept = reduced(recording);
  ASSERT_EQ(kept.processes.size(), view.processes.size());
  for (std::size_t i = 0; i < view.processes.size(); ++i) {
    const ProcessView& shown = view.processes[i];
    const ReducedProcess& process = kept.processes[i];
    EXPECT_EQ(process.rss_first, shown.rss.first);
    EXPECT_EQ(process.rss_last, shown.rss.last);
    EXPECT_EQ(process.rss_peak, shown.rss.peak);
    ASSERT_EQ(process.causes.size(), shown.causes.size());
    for (const CauseFigures& cause : process.causes) {
      const CauseView& expected = *shown.find(cause.cause);
      EXPECT_EQ(cause.last, expected.rss.last);
      EXPECT_EQ(cause.at_peak, expected.at_peak);
      std::int64_t growth = cause.omitted_growth, at_peak = cause.omitted_at_peak;
      for (const LineFigures& line : process.lines) {
        if (line.cause != cause.cause) continue;
        growth += line.growth;
        at_peak += line.at_peak;
      }
      EXPECT_EQ(growth, expected.rss.growth());
      std::int64_t sites_at_peak = 0;
      for (const SiteView& site : expected.sites) sites_at_peak += site.at_peak;
      EXPECT_EQ(at_peak, sites_at_peak);
    }
    ASSERT_FALSE(process.moments.empty());
    std::int64_t last = 0;
    for (const std::int64_t bytes : process.moments.back().bytes) last += bytes;
    EXPECT_EQ(last, shown.rss.last);
  }
}

// Many lines with long names, and more snapshots than are kept: what is left out is summed, and no total changes.
TEST(JobPart, AProcessIsBounded) {
  RecordingAccount recording = literal::quiet();
  std::vector<literal::Part> parts;
  for (int i = 0; i < 1200; ++i)
    parts.push_back({Cause::heap_live, 1 + i % 50,
                     literal::python_stack(recording.stacks, "/" + std::string(700, 'x') + std::to_string(i) + ".py",
                                           i + 1, std::string(700, 'f'))});
  ProcessAccount& process = recording.processes.front();
  for (int i = 0; i < 100; ++i) process.accounts.push_back(literal::walk(1 + i, parts));
  recording.info.duration_s = 600;
  const ReducedRecording kept = reduced(recording);
  const ReducedProcess& bounded = kept.processes.front();
  EXPECT_LE(encoded_bytes(kept, bounded), kMostProcessBytes);
  EXPECT_LE(bounded.moments.size(), kMostMoments);
  EXPECT_GT(bounded.lines.size(), 20U);
  const auto live = std::ranges::find(bounded.causes, Cause::heap_live, &CauseFigures::cause);
  ASSERT_NE(live, bounded.causes.end());
  std::int64_t sum = live->omitted_at_peak;
  for (const LineFigures& line : bounded.lines) {
    if (line.cause != Cause::heap_live) continue;
    sum += line.at_peak;
    EXPECT_GE(line.at_peak, live->omitted_most);
  }
  EXPECT_EQ(sum, live->at_peak);
  EXPECT_GT(live->omitted, 500U);
}

TEST(JobPart, PlacesAreReadFromTheLaunchersVariables) {
  const JobPlace slurm = job_place({{"SLURM_JOB_ID", "9"}, {"SLURM_PROCID", "4"}, {"SLURMD_NODENAME", "n1"}});
  EXPECT_EQ(slurm.job, "9");
  EXPECT_EQ(slurm.node, "n1");
  EXPECT_EQ(slurm.rank, 4);
  EXPECT_EQ(slurm.world_size, std::nullopt);
  // torchrun within a task of Slurm's.
  EXPECT_EQ(job_place({{"RANK", "37"}, {"SLURM_PROCID", "4"}}).rank, 37);
  EXPECT_EQ(job_place({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "8"}}).world_size, 8);
  EXPECT_EQ(job_place({{"RANK", "x"}, {"PMI_RANK", "-1"}}).rank, std::nullopt);
}

class PartOnDisk : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& bytes) const {
    std::string path = folder_ / "a.part";
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

 private:
  std::filesystem::path folder_ = std::filesystem::temp_directory_path() / ("whyrss-part-" + std::to_string(getpid()));
};

// Whether all of it can be read.
std::string read_all(const std::string& path) {
  const Result<PartFile> part = PartFile::open(path);
  if (!part) return part.error();
  for (std::size_t i = 0; i < part->index().entries.size(); ++i)
    if (const auto recording = part->read_recording(i); !recording) return recording.error();
  return {};
}

TEST_F(PartOnDisk, IsReadBack) {
  const std::string path = write(made::bytes_of(made::part(made::recording(1, 5 * made::kMiB))));
  const Result<PartFile> part = PartFile::open(path);
  ASSERT_TRUE(part.ok()) << part.error();
  EXPECT_EQ(*part->read_recording(0), made::recording(1, 5 * made::kMiB));
}

TEST_F(PartOnDisk, EveryCutIsNoticed) {
  const std::string bytes = made::bytes_of(made::part(made::recording(1, 5 * made::kMiB)));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const std::string why = read_all(write(bytes.substr(0, size)));
    EXPECT_NE(why.find(size < 8 ? "part" : "is cut off"), std::string::npos) << size << ": " << why;
  }
  EXPECT_NE(read_all(write(bytes + "x")).find("follow its end"), std::string::npos);
}

TEST_F(PartOnDisk, EveryChangedByteIsNoticed) {
  const std::string bytes = made::bytes_of(made::part(made::recording(1, 5 * made::kMiB)));
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 0x41);
    EXPECT_NE(read_all(write(changed)), "") << at;
  }
}

TEST_F(PartOnDisk, AnotherFormatIsNamed) {
  std::string bytes = made::bytes_of(made::part(made::recording(1, 5 * made::kMiB)));
  bytes[8] = 2;
  EXPECT_NE(read_all(write(bytes)).find("is a part of format 2; this whyrss"), std::string::npos);
}

// Whose checksums are right, as whoever wants can make them: decoding is the last to see it.
TEST(JobPart, AnyBytesAreDecodedOrRefused) {
  const std::string bytes = encode_recording(made::recording(1, 5 * made::kMiB));
  for (std::size_t at = 0; at < bytes.size(); ++at)
    for (const int bit : {0x01, 0x80, 0xff}) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ bit);
      const auto decoded = decode_recording(changed);
      if (!decoded) continue;
      for (const ReducedProcess& process : decoded->processes)
        for (const LineFigures& line : process.lines) EXPECT_LT(line.line, decoded->lines.size());
    }
}

}  // namespace
}  // namespace whyrss::job_part_test
