// Names from real ELF files, and no harm from broken ones.
#include "symbolize/symbolize.h"

#include <elf.h>
#include <gnu/libc-version.h>
#include <gtest/gtest.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "file_tree.h"
#include "symbolize/demangle.h"
#include "symbolize/elf_file.h"

// Known functions whose addresses the tests look up.
namespace whyrss_symbolize_test {
__attribute__((noinline)) int landmark(int value) {
  asm volatile("");
  return value + 1;
}
}  // namespace whyrss_symbolize_test

namespace whyrss::symbolize_test {
namespace {

namespace fs = std::filesystem;

struct Image {
  std::string path, build_id;
  std::uint64_t bias = 0;
};

std::string build_id_of(const dl_phdr_info& info) {
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const auto& header = info.dlpi_phdr[i];
    if (header.p_type != PT_NOTE) continue;
    const char* at = reinterpret_cast<const char*>(info.dlpi_addr + header.p_vaddr);
    const char* end = at + header.p_memsz;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof note);
      const char* name = at + sizeof note;
      const char* text = name + ((note.n_namesz + 3) & ~3U);
      if (note.n_type == NT_GNU_BUILD_ID && std::memcmp(name, "GNU", 4) == 0) return {text, note.n_descsz};
      at = text + ((note.n_descsz + 3) & ~3U);
    }
  }
  return "";
}

// This program, or the loaded library whose path contains `part`.
Image image(const char* part) {
  struct Search {
    const char* part;
    Image image;
    bool found = false;
  } search{part, {}, false};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        auto& wanted = *static_cast<Search*>(data);
        const bool own = wanted.part == nullptr && info->dlpi_name[0] == '\0';
        if (wanted.found || !(own || (wanted.part != nullptr && std::strstr(info->dlpi_name, wanted.part) != nullptr)))
          return 0;
        wanted.found = true;
        wanted.image = {own ? fs::read_symlink("/proc/self/exe").string() : fs::canonical(info->dlpi_name).string(),
                        build_id_of(*info), info->dlpi_addr};
        return 0;
      },
      &search);
  return search.image;
}

std::uint64_t landmark_address() {
  return reinterpret_cast<std::uint64_t>(&whyrss_symbolize_test::landmark) - image(nullptr).bias;
}

// What symbolize says when nothing is known before.
std::vector<std::string> notes_of(StackTable& stacks) {
  NameTable names;
  return symbolize(stacks, names).notes;
}

StackId stack_of(StackTable& stacks, const Module& module, const std::vector<std::uint64_t>& addresses) {
  std::vector<FrameId> ids;
  for (const std::uint64_t address : addresses) {
    Frame frame;
    frame.module = stacks.intern(module);
    frame.address = address;
    ids.push_back(stacks.intern(frame));
  }
  return stacks.intern(ids);
}

class SymbolizeFile : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& bytes) const { return tree_.write(name, bytes); }

  FileTree tree_;
  const std::string& directory_ = tree_.path();
};

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Symbolize, FunctionAndLineOfThisProgram) {
  StackTable stacks;
  const Image self = image(nullptr);
  const StackId stack = stack_of(stacks, {self.path, self.build_id}, {landmark_address(), landmark_address() + 1});
  EXPECT_EQ(notes_of(stacks), std::vector<std::string>{});
  for (const FrameId id : stacks[stack]) {
    EXPECT_EQ(stacks[id].function, "whyrss_symbolize_test::landmark(int)");
    if (stacks[id].line == 0) continue;  // built without -g
    EXPECT_NE(stacks[id].file.find("symbolize_test.cc"), std::string::npos);
    EXPECT_GT(stacks[id].line, 15);
    EXPECT_LT(stacks[id].line, 30);
  }
}

TEST(Symbolize, LibraryWithoutDebugInfo) {
  StackTable stacks;
  const Image libc = image("libc.so");
  ASSERT_FALSE(libc.path.empty());
  const std::uint64_t address = reinterpret_cast<std::uint64_t>(&gnu_get_libc_version) - libc.bias;
  const StackId stack = stack_of(stacks, {libc.path, libc.build_id}, {address});
  EXPECT_TRUE(notes_of(stacks).empty());
  EXPECT_NE(stacks[stacks[stack].front()].function.find("gnu_get_libc_version"), std::string::npos);
}

TEST(Symbolize, AnotherBuildGetsNoNames) {
  StackTable stacks;
  const StackId stack = stack_of(stacks, {image(nullptr).path, "another build"}, {landmark_address()});
  const auto notes = notes_of(stacks);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_NE(notes[0].find("build id differs"), std::string::npos);
  EXPECT_EQ(stacks[stacks[stack].front()].function, "");
}

std::string without_build_id(std::string elf) {
  const std::uint32_t note[]{4, 20, NT_GNU_BUILD_ID};  // sizes of name and bytes, type
  const std::size_t at =
      elf.find(std::string(reinterpret_cast<const char*>(note), sizeof note) + std::string("GNU\0", 4));
  if (at != std::string::npos) elf[at + 8] = 99;  // no known type
  return elf;
}

TEST_F(SymbolizeFile, WithoutABuildIdAFileThatIsNewerIsAnotherBuild) {
  const std::string library = write("library.so", without_build_id(read_file(image("libc.so").path)));
  const std::uint64_t address = reinterpret_cast<std::uint64_t>(&gnu_get_libc_version) - image("libc.so").bias;
  struct stat status {};
  ASSERT_EQ(stat(library.c_str(), &status), 0);
  for (const bool newer : {false, true}) {
    StackTable stacks;
    NameTable names;
    const StackId stack = stack_of(stacks, {library, ""}, {address});
    const auto notes = symbolize(stacks, names, {}, status.st_mtime - (newer ? 1 : 0)).notes;
    const std::string& function = stacks[stacks[stack].front()].function;
    EXPECT_EQ(function.find("gnu_get_libc_version") != std::string::npos, !newer) << function;
    ASSERT_EQ(notes.size(), newer ? 1U : 0U);
    if (newer) {
      EXPECT_NE(notes[0].find("newer than the recording"), std::string::npos);
    }
  }
}

TEST(Symbolize, MissingFileIsOneNote) {
  StackTable stacks;
  stack_of(stacks, {"/no/such/library.so", "x"}, {1, 2, 3});
  const auto notes = notes_of(stacks);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_EQ(notes[0].rfind("/no/such/library.so: ", 0), 0U);
}

TEST(Symbolize, WhatIsNoFileIsLeftAlone) {
  StackTable stacks;
  stack_of(stacks, {"[vdso]", ""}, {1});
  EXPECT_TRUE(notes_of(stacks).empty());
}

TEST(Symbolize, PythonFramesKeepTheirNames) {
  StackTable stacks;
  Frame frame;
  frame.kind = FrameKind::python;
  frame.function = "f";
  const StackId stack = stacks.intern({stacks.intern(frame)});
  EXPECT_TRUE(notes_of(stacks).empty());
  EXPECT_EQ(stacks[stacks[stack].front()].function, "f");
}

TEST_F(SymbolizeFile, WhatIsNoElfFile) {
  fs::create_directory(directory_ + "/directory");
  ASSERT_EQ(mkfifo((directory_ + "/fifo").c_str(), 0600), 0);
  for (const std::string& path : {write("text", "hello"), write("empty", ""), directory_ + "/directory",
                                  directory_ + "/fifo", write("archive", "!<arch>\n")}) {
    StackTable stacks;
    stack_of(stacks, {path, ""}, {0x1000});
    EXPECT_EQ(notes_of(stacks).size(), 1U) << path;
  }
}

// Cut and scribbled copies of this program: a name may be missing or, where the string table itself was
// hit, wrong; nothing else may happen.
TEST_F(SymbolizeFile, DamagedFilesCostTheirNamesOnly) {
  const Image self = image(nullptr);
  const std::string sound = read_file(self.path);
  ASSERT_GT(sound.size(), 4096U);
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    std::string bytes = sound;
    if (round % 3 == 0) bytes.resize(random() % bytes.size());
    if (round % 3 == 1)  // ELF header, program headers and notes, but not the build id's neighbourhood alone
      for (int i = 0; i < 8; ++i) bytes[random() % 1024] = static_cast<char>(random());
    if (round % 3 == 2)
      for (int i = 0; i < 2000; ++i) bytes[2048 + random() % (bytes.size() - 2048)] = static_cast<char>(random());
    const std::string path = write("damaged" + std::to_string(round), bytes);
    StackTable stacks;
    stack_of(stacks, {path, self.build_id}, {landmark_address(), 0, ~std::uint64_t{0}});
    const auto notes = notes_of(stacks);
    EXPECT_LE(notes.size(), 1U);
    fs::remove(path);
  }
}

TEST(StackTable, InlinedCallsBecomeFramesOfTheirOwn) {
  StackTable stacks;
  const StackId both = stack_of(stacks, {"/x", ""}, {1, 2});
  const StackId second = stack_of(stacks, {"/x", ""}, {2});
  const FrameId first_frame = stacks[both][0], second_frame = stacks[both][1];
  stacks.set_names(
      {{first_frame, {{"a", "f.c", 1}}}, {second_frame, {{"in", "f.c", 2}, {"mid", "f.c", 3}, {"b", "g.c", 4}}}});
  std::vector<std::string> shown;
  for (const FrameId id : stacks[both])
    shown.push_back(stacks[id].function + (stacks[id].inlined ? " inlined " : " ") + std::to_string(stacks[id].line));
  EXPECT_EQ(shown, (std::vector<std::string>{"a 1", "in inlined 2", "mid inlined 3", "b 4"}));
  ASSERT_EQ(stacks[second].size(), 3U);
  EXPECT_EQ(stacks[second].back(), second_frame);
  EXPECT_EQ(stacks[stacks[second].front()].address, 2U);
}

// What is known is not read again: not from a file that has become another one, nor from none at all.
TEST_F(SymbolizeFile, WhatIsKnownNeedsNoFile) {
  const Image self = image(nullptr);
  const std::string path = directory_ + "/program";
  fs::copy_file(self.path, path);
  NameTable names;
  StackTable fresh;
  stack_of(fresh, {path, self.build_id}, {landmark_address()});
  EXPECT_TRUE(symbolize(fresh, names).learned);
  for (const bool here : {true, false}) {
    if (here) write("program", "something else");
    if (!here) fs::remove(path);
    StackTable stacks;
    const StackId stack = stack_of(stacks, {path, self.build_id}, {landmark_address()});
    const Symbolized again = symbolize(stacks, names);
    EXPECT_FALSE(again.learned);
    EXPECT_EQ(again.notes.size(), here ? 0U : 1U);
    EXPECT_EQ(stacks[stacks[stack].back()].function, "whyrss_symbolize_test::landmark(int)");
  }
  StackTable stacks;  // another address has to be read, and cannot be
  const StackId stack = stack_of(stacks, {path, self.build_id}, {landmark_address() + 1});
  EXPECT_EQ(symbolize(stacks, names).notes.size(), 1U);
  EXPECT_EQ(stacks[stacks[stack].back()].function, "");
}

TEST(Symbolize, OnlyWhatIsMissingIsRead) {
  const Image self = image(nullptr);
  NameTable names;
  ModuleNames& known = names[Module{self.path, self.build_id}];
  known.lines[landmark_address()] = {{"as it was read", "there.cc", 7}};
  known.has_debug_info = true;
  StackTable stacks;
  const StackId stack = stack_of(stacks, {self.path, self.build_id}, {landmark_address(), landmark_address() + 1});
  EXPECT_TRUE(symbolize(stacks, names).learned);
  EXPECT_EQ(stacks[stacks[stack].front()].function, "as it was read");
  EXPECT_EQ(stacks[stacks[stack].back()].function, "whyrss_symbolize_test::landmark(int)");
  known.cut_at_cpu_s = 1;  // there is more time now
  StackTable again;
  const StackId same = stack_of(again, {self.path, self.build_id}, {landmark_address()});
  EXPECT_TRUE(symbolize(again, names).learned);
  EXPECT_EQ(again[again[same].front()].function, "whyrss_symbolize_test::landmark(int)");
  EXPECT_EQ(known.cut_at_cpu_s, 0);
}

// Of a file that is not loaded.
std::string build_id_in(const std::string& file) {
  ElfW(Ehdr) header;
  std::memcpy(&header, file.data(), sizeof header);
  std::vector<ElfW(Phdr)> segments(header.e_phnum);
  std::memcpy(segments.data(), file.data() + header.e_phoff, segments.size() * sizeof segments.front());
  for (auto& segment : segments) segment.p_vaddr = segment.p_offset;
  dl_phdr_info info{};
  info.dlpi_addr = reinterpret_cast<ElfW(Addr)>(file.data());
  info.dlpi_phdr = segments.data();
  info.dlpi_phnum = header.e_phnum;
  return build_id_of(info);
}

std::string allocator_in(const std::string& path) {
  const Module module{path, build_id_in(read_file(path))};
  StackTable stacks;
  NameTable names;
  stack_of(stacks, module, {1});  // no function covers it
  symbolize(stacks, names);
  return names[module].allocator;
}

// Debian's, which are stripped.
TEST(Symbolize, AnAllocatorIsKnownByItsMessages) {
  for (const auto& [file, allocator] : {std::pair{"libjemalloc.so.2", "jemalloc"}, {"libmimalloc.so.2", "mimalloc"}}) {
    const std::string path = std::string("/usr/lib/x86_64-linux-gnu/") + file;
    if (!fs::exists(path)) GTEST_SKIP() << file << " is not installed";
    EXPECT_EQ(allocator_in(fs::canonical(path)), allocator);
  }
  EXPECT_EQ(allocator_in(fs::canonical("/proc/self/exe")), "") << "it searches for both";
}

TEST_F(SymbolizeFile, ManyModulesAtOnce) {
  const Image self = image(nullptr);
  StackTable stacks;
  std::vector<StackId> ids;
  for (int i = 0; i < 40; ++i) {
    const std::string path = directory_ + "/copy" + std::to_string(i);
    if (i % 4 != 3) fs::create_symlink(self.path, path);
    ids.push_back(stack_of(stacks, {path, self.build_id}, {landmark_address()}));
  }
  EXPECT_EQ(notes_of(stacks).size(), 10U);
  for (std::size_t i = 0; i < ids.size(); ++i)
    EXPECT_EQ(stacks[stacks[ids[i]].back()].function, i % 4 == 3 ? "" : "whyrss_symbolize_test::landmark(int)");
}

TEST(Demangle, PlainMangledAndAbsurd) {
  EXPECT_EQ(demangled("main"), "main");
  EXPECT_EQ(demangled("_ZN3foo3barEi"), "foo::bar(int)");
  EXPECT_EQ(demangled("_Znot mangled"), "_Znot mangled");
  EXPECT_EQ(demangled(""), "");
  // Rust: the mangling of old with its hash, which nobody wants to read, and the one of today.
  EXPECT_EQ(demangled("_ZN4core3ptr13drop_in_place17h0123456789abcdefE"), "core::ptr::drop_in_place");
  EXPECT_EQ(
      demangled("_ZN66_$LT$alloc..vec..Vec$LT$T$GT$$u20$as$u20$core..ops..drop..Drop$GT$4drop17h0123456789abcdefE"),
      "<alloc::vec::Vec<T> as core::ops::drop::Drop>::drop");
  EXPECT_EQ(demangled("_RNvC7mycrate3foo"), "mycrate::foo");
  EXPECT_EQ(demangled("_RINvNtC4core3mem4swapyE"), "core::mem::swap::<u64>");
  EXPECT_EQ(demangled("_Rnot mangled"), "_Rnot mangled");
  EXPECT_EQ(demangled("__pyx_pf_5cyjob_keep_rows"), "cyjob.keep_rows");
  EXPECT_EQ(demangled("__pyx_pw_5cyjob_1keep_rows"), "cyjob.keep_rows");
  EXPECT_EQ(demangled("__pyx_pf_3pkg_5cyjob_5Table_12append"), "pkg.cyjob.Table.append");
  EXPECT_EQ(demangled("__pyx_f_5cyjob_helper"), "cyjob.helper");
  EXPECT_EQ(demangled("__pyx_f_99999999999_"), "__pyx_f_99999999999_");
  EXPECT_EQ(demangled("__Pyx_PyObject_Call"), "__Pyx_PyObject_Call");
  EXPECT_EQ(demangled("CPyDef_pytokens___TokenIterator___newline"), "pytokens.TokenIterator.newline");
  const std::string absurd = "_Z" + std::string(100000, 'P');
  EXPECT_EQ(demangled(absurd.c_str()), absurd);
}

TEST(DebugFile, PathByBuildId) { EXPECT_EQ(debug_file_path("\xab\xcd\x01"), "/usr/lib/debug/.build-id/ab/cd01.debug"); }

}  // namespace
}  // namespace whyrss::symbolize_test
