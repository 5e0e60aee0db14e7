// Names kept beside a recording: what was written is read, and nothing else is believed.
#include "decode/name_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "file_tree.h"
#include "recording/frame_file.h"

namespace whyrss::name_file_test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSession = "00112233445566778899aabbccddeeff";
constexpr trace::SessionId kSessionId{.high = 0x0011223344556677, .low = 0x8899aabbccddeeff};

class NameFile : public ::testing::Test {
 protected:
  void SetUp() override { setenv("XDG_CACHE_HOME", (directory_ + "/cache").c_str(), 1); }
  void TearDown() override { unsetenv("XDG_CACHE_HOME"); }

  [[nodiscard]] std::string path() const { return directory_ + "/symbols.zst"; }
  [[nodiscard]] Folder folder() const { return *Folder::open(directory_); }

  FileTree tree_;
  const std::string& directory_ = tree_.path();
};

NameTable some_names() {
  NameTable table;
  ModuleNames& names = table[Module{"/usr/lib/libx.so", std::string("\x01\x00\xff", 3)}];
  names.lines[0x1234] = {{"inlined", "a.c", 4}, {"outer", "b.c", 9}};
  names.lines[0xffffffffffffffff] = {};
  names.has_debug_info = true;
  names.allocator = "jemalloc";
  table[Module{"/bin/other", ""}].cut_at_cpu_s = 2;
  return table;
}

void expect_same(const NameTable& found, const NameTable& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (const auto& [module, names] : wanted) {
    ASSERT_TRUE(found.contains(module)) << module.path;
    EXPECT_EQ(found.at(module).lines, names.lines);
    EXPECT_EQ(found.at(module).has_debug_info, names.has_debug_info);
    EXPECT_EQ(found.at(module).cut_at_cpu_s, names.cut_at_cpu_s);
    EXPECT_EQ(found.at(module).allocator, names.allocator);
  }
}

TEST_F(NameFile, WhatWasWrittenIsRead) {
  EXPECT_TRUE(read_name_file(folder(), kSession).empty());
  for (int round = 0; round < 2; ++round) {  // the second replaces the first
    ASSERT_TRUE(write_name_file(folder(), kSession, some_names()));
    expect_same(read_name_file(folder(), kSession), some_names());
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), {}), 1);  // nothing else is left behind
}

TEST_F(NameFile, TextThatIsNoUtf8DoesNoHarm) {
  NameTable names;
  names[Module{"/x", "id"}].lines[1] = {{"\xff\xfe", "\xc3", 1}};
  ASSERT_TRUE(write_name_file(folder(), kSession, names));
  const NameTable found = read_name_file(folder(), kSession);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found.begin()->second.lines.at(1).front().line, 1);
}

TEST_F(NameFile, OfAnotherRecordingIsIgnored) {
  ASSERT_TRUE(write_name_file(folder(), kSession, some_names()));
  EXPECT_TRUE(read_name_file(folder(), "ffffffffffffffffffffffffffffffff").empty());
  EXPECT_TRUE(read_name_file(folder(), "").empty());
  EXPECT_FALSE(write_name_file(folder(), "no session", some_names()));
}

TEST_F(NameFile, TheCacheServesWhereTheRecordingCannotBeWritten) {
  ASSERT_TRUE(write_name_file(Folder(), kSession, some_names()));
  expect_same(read_name_file(Folder(), kSession), some_names());
  setenv("XDG_CACHE_HOME", "/proc/self/nothing", 1);
  EXPECT_FALSE(write_name_file(Folder(), kSession, some_names()));
  EXPECT_TRUE(read_name_file(Folder(), kSession).empty());
}

TEST_F(NameFile, DamageCostsNamesOnly) {
  ASSERT_TRUE(write_name_file(folder(), kSession, some_names()));
  std::ifstream in(path(), std::ios::binary);
  const std::string sound((std::istreambuf_iterator<char>(in)), {});
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    std::string bytes = sound;
    if (round % 2 == 0) bytes.resize(random() % bytes.size());
    if (round % 2 == 1) bytes[random() % bytes.size()] ^= static_cast<char>(1 + random() % 255);
    std::ofstream(path(), std::ios::binary) << bytes;
    for (const auto& [module, names] : read_name_file(folder(), kSession)) {
      ASSERT_TRUE(some_names().contains(module));  // what is left is true
      EXPECT_EQ(names.lines, some_names().at(module).lines);
    }
  }
}

TEST_F(NameFile, DamageIsNamed) {
  const auto damage_of = [&](const std::string& bytes) {
    std::ofstream(path(), std::ios::binary) << bytes;
    std::vector<std::string> damage;
    static_cast<void>(read_name_file(folder(), kSession, &damage));
    for (const std::string& line : damage) EXPECT_NE(line.find("symbols.zst"), std::string::npos) << line;
    return damage.size();
  };
  ASSERT_TRUE(write_name_file(folder(), kSession, some_names()));
  std::ifstream in(path(), std::ios::binary);
  const std::string sound((std::istreambuf_iterator<char>(in)), {});
  EXPECT_EQ(damage_of(sound), 0U);
  for (std::size_t at = 0; at < sound.size(); ++at) {
    EXPECT_EQ(damage_of(sound.substr(0, at)), 1U) << at;  // at the end of a frame too
    std::string flipped = sound;
    flipped[at] = static_cast<char>(flipped[at] ^ 8);
    EXPECT_EQ(damage_of(flipped), 1U) << at;
  }
  EXPECT_EQ(damage_of(sound + sound.substr(sizeof(trace::FileHeader))), 1U);  // all frames twice
  fs::resize_file(path(), 1UL << 36);                                         // sparse
  std::vector<std::string> damage;
  EXPECT_TRUE(read_name_file(folder(), kSession, &damage).empty());
  fs::remove(path());
  fs::create_directory(path());
  EXPECT_TRUE(read_name_file(folder(), kSession, &damage).empty());
  EXPECT_EQ(damage.size(), 2U);
}

TEST_F(NameFile, FramesThatSayOtherThingsAreSkipped) {
  for (const char* text :
       {"", "[]", "{}", "7", "{\"path\":1}", "[[[[", "{\"path\":\"/x\",\"build_id\":\"zz\",\"debug_info\":1}",
        R"({"path":"/x","build_id":"","debug_info":true,"cut_at_cpu_s":0,"names":[[1,["f"]]]})",
        R"({"path":"/x","build_id":"","debug_info":true,"cut_at_cpu_s":0,"names":[[]]})",
        R"({"path":"/x","build_id":"","debug_info":true,"cut_at_cpu_s":0,"names":[["1",["f","g",3]]]})"}) {
    fs::remove(path());
    auto writer = FrameWriter::create(path(), {.kind = trace::FileKind::names, .session = kSessionId});
    ASSERT_TRUE(writer);
    ASSERT_TRUE(writer->append(trace::FrameKind::names, 1, std::as_bytes(std::span(std::string_view(text)))));
    EXPECT_TRUE(read_name_file(folder(), kSession).empty()) << text;
  }
}

// A recording that was made to harm: its checksums are right.
TEST_F(NameFile, ForgedFramesDoNoHarm) {
  ASSERT_TRUE(write_name_file(folder(), kSession, some_names()));
  std::ifstream in(path(), std::ios::binary);
  const std::string sound((std::istreambuf_iterator<char>(in)), {});
  const auto frames = parse_frame_file(std::as_bytes(std::span(sound)), "names");
  ASSERT_TRUE(frames);
  std::mt19937 random(5);
  for (int round = 0; round < 500; ++round) {
    fs::remove(path());
    auto writer = FrameWriter::create(path(), {.kind = trace::FileKind::names, .session = kSessionId});
    ASSERT_TRUE(writer);
    for (const RawFrame& frame : frames->frames) {
      std::vector<std::byte> payload = frame.payload;
      for (int i = 0; i < 3; ++i)
        payload[random() % payload.size()] = static_cast<std::byte>("[]{},:\"019ax"[random() % 12]);
      ASSERT_TRUE(writer->append(trace::FrameKind::names, 1, payload));
    }
    for (const auto& [module, names] : read_name_file(folder(), kSession))
      for (const auto& [address, lines] : names.lines)
        for (const CodeLine& line : lines) EXPECT_GE(line.line, 0);
  }
}

}  // namespace
}  // namespace whyrss::name_file_test
