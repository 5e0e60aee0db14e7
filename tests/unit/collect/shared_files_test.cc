// Files in memory: which are open, what of them is mapped, whose names have a process's number; and at whom they count.
#include "collect/read/shared_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "collect/loop/unmapped_reader.h"
#include "load/load.h"
#include "recording_builder.h"
#include "support/file.h"

namespace whyrss::shared_files_test {
namespace {

using testing_support::ByteVector;
using testing_support::TestRecording;

constexpr std::int64_t kMiB = 1024 * 1024;

Fd memfd(const char* name, std::int64_t mib) {
  Fd fd(memfd_create(name, MFD_CLOEXEC));
  EXPECT_TRUE(write_fully(fd.get(), std::string(static_cast<std::size_t>(mib * kMiB), 'x')));
  return fd;
}

const SharedFile* find(const std::vector<SharedFile>& files, std::string_view name) {
  const auto found =
      std::ranges::find_if(files, [&](const SharedFile& file) { return file.path.find(name) != std::string::npos; });
  return found == files.end() ? nullptr : &*found;
}

TEST(SharedFiles, WhatIsOpenIsFoundOnceWithoutOurOwn) {
  const Fd fd = memfd("open-here", 3), ours = memfd("whyrss:own", 1), again(dup(fd.get()));
  const Fd sparse(memfd_create("sparse", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(sparse.get(), 64 * kMiB), 0);
  BackingResolver resolver;
  const auto files = open_shared_files(getpid(), resolver);
  ASSERT_TRUE(files);
  const SharedFile* file = find(*files, "open-here");
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(file->memory_bytes, 3 * kMiB);
  EXPECT_EQ(std::ranges::count(*files, file->id, &SharedFile::id), 1);
  EXPECT_EQ(find(*files, "whyrss:own"), nullptr);
  EXPECT_EQ(find(*files, "sparse"), nullptr);
  EXPECT_FALSE(open_shared_files(0x7fffffff, resolver));
}

class NamedFile : public testing::Test {
 protected:
  NamedFile() {
    fd_ = Fd(open(path_.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
    EXPECT_TRUE(write_fully(fd_.get(), std::string(kMiB, 'x')));
  }
  ~NamedFile() override { unlink(path_.c_str()); }

  [[nodiscard]] std::vector<NamedSharedFile> found(const std::set<pid_t>& pids, double since_s = 0) {
    return find_named_files(getpid(), {.pids = pids, .since_s = since_s, .inodes = {}}, resolver_);
  }

  std::string path_ = fmt::format("/dev/shm/unit_{}_0", getpid());
  Fd fd_;
  BackingResolver resolver_;
};

TEST_F(NamedFile, ANumberOfAProcessInItsNameMakesItThatProcesss) {
  const auto files = found({1 << 30, getpid()});
  ASSERT_EQ(files.size(), 1U);
  EXPECT_EQ(files[0].pid, getpid());
  EXPECT_EQ(files[0].file.path, path_);
  EXPECT_EQ(files[0].file.memory_bytes, kMiB);
  EXPECT_TRUE(found({getpid() / 10}).empty());
  EXPECT_TRUE(found({getpid()}, 1e12).empty());  // it was there before the recording
  const auto now = shared_file_at(getpid(), path_, resolver_);
  ASSERT_TRUE(now);
  EXPECT_EQ(now->id, files[0].file.id);
  EXPECT_FALSE(shared_file_at(getpid(), "/proc/self/status", resolver_));
  EXPECT_FALSE(shared_file_at(getpid(), "/dev/shm/not-there", resolver_));
}

TEST(MappedParts, WhatTwoMapCountsOnce) {
  MappedParts parts;
  const auto mapping = [](std::uint64_t inode, std::uint64_t offset, std::uint64_t bytes) {
    MapsEntry entry;
    entry.start = 0x1000;
    entry.end = entry.start + bytes;
    entry.file_offset = offset;
    entry.device_minor = 5;
    entry.inode = inode;
    return entry;
  };
  parts.add({mapping(7, 0, 0x4000), mapping(8, 0, 0x1000), mapping(0, 0, 0x9000)});
  parts.add({mapping(7, 0x2000, 0x4000), mapping(7, 0x8000, 0x1000), mapping(7, 0x1000, 0x1000)});
  EXPECT_EQ(parts.bytes_of({0, 5, 7}), 0x7000);
  EXPECT_EQ(parts.bytes_of({0, 5, 8}), 0x1000);
  EXPECT_EQ(parts.bytes_of({0, 5, 9}), 0);
}

TEST(DetachedSegments, OnlyWhatNobodyHasAttached) {
  const auto segments = parse_detached_segments(
      "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      "
      "dtime      ctime                   rss                  swap\n"
      "         0          1   600              41943040    77    78      0     0     0     0     0 1 2 3 41943040 "
      "4096\n"
      "    -12345          2   600              41943040    77    78      1     0     0     0     0 1 2 3 41943040 0\n"
      "    -12345          3   600              41943040    77\n");
  ASSERT_EQ(segments.size(), 1U);
  EXPECT_EQ(segments[0].name, "/SYSV00000000");
  EXPECT_EQ(segments[0].id, 1U);
  EXPECT_EQ(segments[0].creator, 77);
  EXPECT_EQ(segments[0].memory_bytes, 41943040 + 4096);
}

UnmappedReader::Process self() { return {{static_cast<std::uint32_t>(getpid()), 1}, getpid(), 1}; }

std::int64_t bytes_of(const UnmappedReader::Files& files, std::string_view name) {
  std::int64_t sum = 0;
  for (const auto& file : *files)
    if (file.name.find(name) != std::string::npos) sum += file.bytes;
  return sum;
}

TEST(UnmappedReader, CountsWhatIsNotMappedAndSaysWhatHasChanged) {
  BackingResolver resolver;
  UnmappedReader reader(resolver, 0);
  Fd fd = memfd("counted", 4);
  auto changes = reader.read({self()});
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(bytes_of(changes[0].second, "counted"), 4 * kMiB);
  EXPECT_TRUE(reader.depends_on(self().key));
  EXPECT_TRUE(reader.read({self()}).empty());
  void* view = mmap(nullptr, 3 * kMiB, PROT_READ, MAP_SHARED, fd.get(), 0);
  ASSERT_NE(view, MAP_FAILED);
  changes = reader.read({self()});
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(bytes_of(changes[0].second, "counted"), kMiB);
  munmap(view, 3 * kMiB);
  fd.reset();
  changes = reader.read({self()});
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(bytes_of(changes[0].second, "counted"), 0);
  EXPECT_TRUE(reader.read({}).empty());
}

// A file without a process's number in its name, three folders deep.
TEST(UnmappedReader, WhatACallHasMadeIsFoundByItsInode) {
  const std::string folder = fmt::format("/dev/shm/unit-{}", std::random_device()()), path = folder + "/a/b/made";
  std::filesystem::create_directories(folder + "/a/b");
  for (const char* name : {"made", "by-another"})
    ASSERT_TRUE(write_file_atomically(fmt::format("{}/a/b/{}", folder, name), std::string(4 * kMiB, 'x')));
  struct stat facts {};
  ASSERT_EQ(stat(path.c_str(), &facts), 0);
  const SharedFileId id{major(facts.st_dev), minor(facts.st_dev), facts.st_ino};
  BackingResolver resolver;
  UnmappedReader reader(resolver, 0);
  const ProcessKey ended{1, 1};
  EXPECT_TRUE(reader.read({self()}).empty());
  EXPECT_FALSE(reader.depends_on(ended));

  reader.note_made(id, ended);
  EXPECT_TRUE(reader.depends_on(ended)) << "it is to be read before that process is gone";
  auto changes = reader.read({self(), {ended, self().pid, 2}});
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes[0].first, ended);
  EXPECT_EQ(bytes_of(changes[0].second, folder), 4 * kMiB) << "the other file is not the job's";
  EXPECT_TRUE(reader.depends_on(self().key)) << "it is left with what the other counts";
  changes = reader.read({self()});
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(bytes_of(changes[0].second, folder), 4 * kMiB);

  std::filesystem::remove_all(folder);
  changes = reader.read({self()});
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(bytes_of(changes[0].second, folder), 0);
  EXPECT_FALSE(reader.depends_on(self().key));
}

TEST(UnmappedReader, PayloadSumsAndNamesTheLargest) {
  EXPECT_EQ(unmapped_payload({}), nlohmann::json({{"bytes", nullptr}}));
  std::vector<UnmappedReader::File> files;
  for (int i = 0; i < 40; ++i) files.push_back({fmt::format("/dev/shm/{}", i), 10});
  const nlohmann::json payload = unmapped_payload(files);
  EXPECT_EQ(payload["bytes"], 400);
  EXPECT_EQ(payload["count"], 40);
  EXPECT_EQ(payload["files"].size(), 32U);
}

TEST(UnmappedOfARecording, WhatIsNoFigureIsNotKnown) {
  TestRecording recording;
  const auto frame = [](std::string_view text) {
    ByteVector payload;
    for (const char letter : text) payload.push_back(static_cast<std::byte>(letter));
    return std::pair(trace::FrameKind::unmapped, payload);
  };
  recording.add(100, {},
                {frame(R"({"bytes":5,"count":2,"files":[{"name":"/memfd:a","bytes":3,"minor":5,"inode":9},7]})"),
                 frame(R"({"bytes":null})"), frame(R"({"bytes":-1})")});
  recording.write_manifest();
  const auto account = load_account(recording.path());
  ASSERT_TRUE(account.ok()) << account.error();
  const auto& unmapped = account->processes.at(0).unmapped;
  ASSERT_EQ(unmapped.size(), 2U);
  EXPECT_EQ(unmapped[0].bytes, 5);
  EXPECT_EQ(unmapped[0].count, 2);
  ASSERT_EQ(unmapped[0].files.size(), 1U);
  EXPECT_EQ(unmapped[0].files[0].name, "/memfd:a");
  EXPECT_EQ(unmapped[0].files[0].device_minor, 5U);
  EXPECT_EQ(unmapped[0].files[0].inode, 9U);
  EXPECT_FALSE(unmapped[1].bytes);
}

}  // namespace
}  // namespace whyrss::shared_files_test
