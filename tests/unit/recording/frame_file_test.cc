// Frames: what was appended is read back, and a file that was cut or flipped anywhere gives up only the
// frames that were hit.
#include "recording/frame_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "file_tree.h"
#include "recording/frame_order.h"
#include "support/file.h"

namespace whyrss::frame_file_test {
namespace {

class FrameFileTest : public testing::Test {
 protected:
  static std::vector<std::byte> payload(std::size_t size, unsigned seed) {
    std::vector<std::byte> bytes(size);
    for (std::size_t i = 0; i < size; ++i) {
      seed = seed * 1664525 + 1013904223;
      bytes[i] = static_cast<std::byte>(seed >> 24);
    }
    return bytes;
  }

  // Twelve frames of random bytes, of 0 to 11000 bytes each.
  std::vector<std::byte> write_twelve() {
    auto writer = FrameWriter::create(
        path(), {.kind = trace::FileKind::events, .session = {.high = 1, .low = 2}, .pid = 77, .start_ticks = 4711});
    EXPECT_TRUE(writer.ok());
    for (unsigned i = 0; i < 12; ++i)
      EXPECT_TRUE(writer->append(trace::FrameKind::segment, i, payload(std::size_t{i} * 1000, i)).ok());
    return load();
  }

  std::vector<std::byte> load() {
    const auto text = read_file(path());
    EXPECT_TRUE(text.ok());
    std::vector<std::byte> bytes(text->size());
    std::memcpy(bytes.data(), text->data(), bytes.size());
    return bytes;
  }

  // Every frame that was read is exactly one of the twelve, in order; returns how many.
  static std::size_t expect_true_frames(const FrameFile& file) {
    std::uint64_t last = 0;
    const Fd fd = file.reopen();
    for (const RawFrame& frame : file.frames) {
      EXPECT_GE(frame.time_ns, last);
      last = frame.time_ns;
      EXPECT_EQ(load_payload(frame, fd.get(), 0),
                payload(std::size_t{frame.time_ns} * 1000, static_cast<unsigned>(frame.time_ns)));
    }
    return file.frames.size();
  }

  [[nodiscard]] std::string path() const { return directory_ + "/events.zst"; }
  FileTree tree_;
  const std::string& directory_ = tree_.path();
};

TEST_F(FrameFileTest, ReadsBackWhatWasAppended) {
  const auto file = parse_frame_file(write_twelve(), "f");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->identity.pid, 77U);
  EXPECT_EQ(file->identity.start_ticks, 4711U);
  EXPECT_EQ(file->identity.session, (trace::SessionId{.high = 1, .low = 2}));
  EXPECT_EQ(expect_true_frames(*file), 12U);
  EXPECT_EQ(file->damaged_bytes, 0U);
  EXPECT_FALSE(file->cut_short);
}

TEST_F(FrameFileTest, ReadsUpToTheLastWholeFrameWhenCutAnywhere) {
  const auto bytes = write_twelve();
  std::size_t whole_before = 0;
  for (std::size_t size = sizeof(trace::FileHeader); size < bytes.size(); size += 97) {
    const auto file = parse_frame_file(std::span(bytes).first(size), "f");
    ASSERT_TRUE(file.ok());
    const std::size_t whole = expect_true_frames(*file);
    EXPECT_GE(whole, whole_before);
    whole_before = whole;
    EXPECT_EQ(file->damaged_bytes, 0U) << size;
  }
  EXPECT_EQ(whole_before, 11U);
  const auto cut = parse_frame_file(std::span(bytes).first(bytes.size() - 1), "f");
  ASSERT_TRUE(cut.ok());
  EXPECT_TRUE(cut->cut_short);
}

TEST_F(FrameFileTest, AFlippedByteCostsOneFrame) {
  const auto bytes = write_twelve();
  for (std::size_t at = sizeof(trace::FileHeader); at < bytes.size(); at += 53) {
    auto flipped = bytes;
    flipped[at] ^= std::byte{0x40};
    const auto file = parse_frame_file(flipped, "f");
    ASSERT_TRUE(file.ok());
    EXPECT_EQ(expect_true_frames(*file), 11U) << at;
    EXPECT_TRUE(file->damaged_bytes > 0 || file->cut_short) << at;
  }
}

TEST_F(FrameFileTest, RefusesWhatIsNoRecording) {
  auto bytes = write_twelve();
  EXPECT_FALSE(parse_frame_file({}, "f").ok());
  EXPECT_FALSE(parse_frame_file(std::span(bytes).first(63), "f").ok());
  for (std::size_t at = 0; at < sizeof(trace::FileHeader); ++at) {
    auto flipped = bytes;
    flipped[at] ^= std::byte{1};
    EXPECT_FALSE(parse_frame_file(flipped, "f").ok()) << at;
  }
  EXPECT_FALSE(parse_frame_file(payload(100000, 3), "f").ok());
}

TEST_F(FrameFileTest, ReadsAFileAsItReadsItsBytes) {
  const auto bytes = write_twelve();
  for (std::size_t i = 0; i < 40; ++i) {
    auto changed = bytes;
    const std::size_t at = sizeof(trace::FileHeader) + i * 1600;
    if (i % 2 == 0)
      changed[at] ^= std::byte{0x40};
    else
      changed.resize(at);
    const std::string changed_path = directory_ + "/changed";
    const std::string_view text(reinterpret_cast<const char*>(changed.data()), changed.size());
    ASSERT_TRUE(write_file_atomically(changed_path, text).ok());
    const auto expected = parse_frame_file(changed, "f");
    const auto file = read_frame_file(changed_path);
    ASSERT_TRUE(expected.ok() && file.ok());
    EXPECT_EQ(expect_true_frames(*file), expected->frames.size());
    EXPECT_EQ(file->damaged_bytes, expected->damaged_bytes);
    EXPECT_EQ(file->cut_short, expected->cut_short);
  }
  EXPECT_FALSE(read_frame_file(directory_ + "/missing").ok());
}

TEST_F(FrameFileTest, LeavesEventsInTheFileButForTheFrontOfBlocks) {
  const auto blocks = payload(300'000, 5);
  {
    auto writer = FrameWriter::create(path(), {.kind = trace::FileKind::events});
    ASSERT_TRUE(writer.ok());
    EXPECT_TRUE(writer->append(trace::FrameKind::walk, 1, payload(1000, 1)).ok());
    EXPECT_TRUE(
        writer->append(trace::FrameKind::blocks, 2, blocks, std::vector<std::size_t>{1234, 0, 66, 298'700}).ok());
    EXPECT_TRUE(writer->append(trace::FrameKind::blocks, 3, blocks, std::vector<std::size_t>{blocks.size()}).ok());
    EXPECT_TRUE(writer->append(trace::FrameKind::blocks, 4, {}).ok());
    for (const std::size_t bytes : {5000U, 200U})
      EXPECT_TRUE(writer->append(trace::FrameKind::segment, 5, payload(bytes, 9)).ok());
  }
  const auto file = read_frame_file(path());
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(file->frames.size(), 6U);
  const auto walk = payload(1000, 1);
  EXPECT_EQ(file->frames[0].payload, std::vector(walk.begin(), walk.begin() + sizeof(trace::WalkHeader)));
  EXPECT_EQ(file->frames[1].payload, std::vector(blocks.begin(), blocks.begin() + 1234));
  EXPECT_EQ(file->frames[2].payload, blocks);
  const Fd fd = file->reopen();
  for (const std::size_t i : {1U, 2U}) {
    auto whole = load_payload(file->frames[i], fd.get(), 8);
    ASSERT_TRUE(whole.has_value());
    ASSERT_EQ(whole->size(), blocks.size() + 8);
    whole->resize(blocks.size());
    EXPECT_EQ(*whole, blocks);
  }
  PayloadBuffer buffer;
  for (const std::size_t i : {4U, 5U, 2U, 0U}) {
    const auto whole = load_payload(file->frames[i], fd.get(), 0);
    const auto in_buffer = buffer.load(file->frames[i], fd.get());
    ASSERT_TRUE(whole.has_value() && in_buffer.has_value());
    EXPECT_EQ(*whole, std::vector(in_buffer->begin(), in_buffer->end()));
    EXPECT_EQ(i == 4, *whole == payload(5000, 9));
  }
  EXPECT_TRUE(file->frames[4].payload.empty());
  EXPECT_FALSE(buffer.load(file->frames[4], -1).has_value());
  EXPECT_EQ(load_payload(file->frames[0], fd.get(), 8)->size(), 1008U);
  EXPECT_FALSE(load_payload(file->frames[1], -1, 8).has_value());
  ASSERT_EQ(truncate(path().c_str(), 5000), 0);
  EXPECT_FALSE(load_payload(file->frames[1], fd.get(), 8).has_value());
  const auto all = parse_frame_file(load(), "f");
  EXPECT_TRUE(all.ok());
}

TEST_F(FrameFileTest, OfAnotherVersionIsRefusedInOneLine) {
  auto bytes = write_twelve();
  bytes[offsetof(trace::FileHeader, version)] = std::byte{2};
  EXPECT_EQ(parse_frame_file(bytes, "f").error(),
            fmt::format("f has format version 2; this whyrss reads {}", trace::kFormatVersion));
}

TEST_F(FrameFileTest, NumbersItsFrames) {
  const auto bytes = write_twelve();
  auto file = parse_frame_file(bytes, "f");
  ASSERT_TRUE(file.ok());
  for (std::size_t i = 0; i < file->frames.size(); ++i) EXPECT_EQ(file->frames[i].number, i);
  EXPECT_TRUE(check_frames(*file, 12).empty());
  EXPECT_TRUE(check_frames(*file, std::nullopt).empty());
  EXPECT_EQ(check_frames(*file, 13), std::vector<std::string>{"frame 13 of 13 is missing"});
  EXPECT_EQ(check_frames(*file, 7),
            std::vector<std::string>{"it had 5 more frames than its writer counted, which were left out"});
  EXPECT_EQ(file->frames.size(), 7U);
}

TEST_F(FrameFileTest, FramesThatWereTakenOutAreMissing) {
  auto writer = FrameWriter::create(path(), {.kind = trace::FileKind::pages});
  ASSERT_TRUE(writer.ok());
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(writer->append(trace::FrameKind::walk, 1, payload(10, 1)).ok());
  EXPECT_EQ(writer->frame_count(), 4U);
  auto file = parse_frame_file(load(), "f");
  ASSERT_TRUE(file.ok());
  file->frames.erase(file->frames.begin() + 3);
  file->frames.erase(file->frames.begin() + 1);
  EXPECT_EQ(check_frames(*file, writer->frame_count()), std::vector<std::string>{"frames 2, 4 of 4 are missing"});
}

TEST_F(FrameFileTest, NumbersThatNobodyGaveDoNoHarm) {
  FrameFile file;
  for (const std::uint64_t number : {UINT64_MAX, UINT64_MAX - 1, std::uint64_t{0}})
    file.frames.push_back({.payload = {}, .number = number});
  put_in_order(file);
  EXPECT_EQ(file.frames.size(), 2U);
  EXPECT_EQ(check_frames(file, std::nullopt).size(), 2U);
  EXPECT_EQ(check_frames(file, 1).size(), 2U);
  EXPECT_EQ(file.frames.size(), 1U);
}

TEST_F(FrameFileTest, NeverReplacesAnExistingFile) {
  write_twelve();
  EXPECT_FALSE(FrameWriter::create(path(), {}).ok());
}

TEST_F(FrameFileTest, CutsBackToTheLastWholeFrameWhenThereIsNoRoomAndGoesOnLater) {
  signal(SIGXFSZ, SIG_IGN);
  auto writer = FrameWriter::create(path(), {.kind = trace::FileKind::pages});
  ASSERT_TRUE(writer.ok());
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit low{.rlim_cur = 20000, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &low);
  std::vector<std::uint64_t> stored;
  std::size_t failed = 0;
  for (unsigned i = 1; i < 12; ++i) {
    const bool ok = writer->append(trace::FrameKind::walk, i, payload(std::size_t{i} * 1000, i)).ok();
    ok ? stored.push_back(i) : void(++failed);
    EXPECT_EQ(std::filesystem::file_size(path()), writer->size_bytes());
  }
  EXPECT_TRUE(writer->append(trace::FrameKind::walk, 1, payload(1000, 1)).ok());  // small enough again
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_GT(failed, 0U);
  EXPECT_TRUE(writer->append(trace::FrameKind::walk, 12, payload(12000, 12)).ok());

  const auto file = parse_frame_file(load(), "f");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->frames.size(), stored.size() + 2);
  EXPECT_EQ(file->damaged_bytes, 0U);
  EXPECT_FALSE(file->cut_short);
  EXPECT_EQ(file->frames.back().payload, payload(12000, 12));
}

}  // namespace
}  // namespace whyrss::frame_file_test
