#include "shim/sys/file_symbols.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <link.h>

#include <array>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

// Of C, and of this file alone: what they are called stands in .symtab only.
extern "C" {
[[gnu::used, gnu::noinline]] static int pair_of_end() { return 1; }
[[gnu::used, gnu::noinline]] static int pair_of_ending() { return 2; }
[[gnu::used, gnu::noinline]] static int lone_end() { return 3; }
}

namespace whyrss::shim {
namespace {

constexpr const char* kSelf = "/proc/self/exe";

struct Program {
  std::uint64_t bias = 0;
  std::vector<std::byte> build_id;
};

int visit_first(dl_phdr_info* image, std::size_t, void* data) {
  auto& program = *static_cast<Program*>(data);
  program.bias = image->dlpi_addr;
  for (int i = 0; i < image->dlpi_phnum; ++i) {
    if (image->dlpi_phdr[i].p_type != PT_NOTE) continue;
    const auto* at = reinterpret_cast<const std::byte*>(image->dlpi_addr + image->dlpi_phdr[i].p_vaddr);
    const auto* end = at + image->dlpi_phdr[i].p_memsz;
    while (at < end) {
      const auto& note = *reinterpret_cast<const Elf64_Nhdr*>(at);
      const auto* text = at + sizeof(note) + 4;
      if (note.n_type == NT_GNU_BUILD_ID) program.build_id.assign(text, text + note.n_descsz);
      at = text + (note.n_descsz + 3U) / 4 * 4;
    }
  }
  return 1;
}

class FileSymbols : public testing::Test {
 protected:
  FileSymbols() { dl_iterate_phdr(visit_first, &program_); }
  void SetUp() override { ASSERT_FALSE(program_.build_id.empty()); }
  std::uint64_t find(std::string_view suffix, std::string_view also, const char* path = kSelf) {
    return find_in_file(path, program_.build_id, suffix, also, buffer_);
  }
  Program program_;
  std::array<char, 4096> buffer_{};
};

TEST_F(FileSymbols, FindsAFunctionThatOnlyTheFileNames) {
  EXPECT_EQ(program_.bias + find("_end", "_ending"), reinterpret_cast<std::uint64_t>(&pair_of_end));
}

TEST_F(FileSymbols, WantsBothNamesWithOnePrefix) {
  EXPECT_NE(find("pair_of_end", "pair_of_ending"), 0U);
  EXPECT_EQ(find("ne_end", "ne_ending"), 0U);
  EXPECT_EQ(find("_end", "_unending"), 0U);
  EXPECT_EQ(find("r_of_end", "lone_end"), 0U);
}

TEST_F(FileSymbols, WantsTheFileThatWasLoaded) {
  program_.build_id.front() ^= std::byte{1};
  EXPECT_EQ(find("_end", "_ending"), 0U);
  program_.build_id.clear();
  EXPECT_EQ(find("_end", "_ending"), 0U);
}

// The sections of a file that ends anywhere.
TEST_F(FileSymbols, FindsNothingInAFileThatIsCutOff) {
  std::ifstream file(kSelf, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(file)), {});
  const std::string path = testing::TempDir() + "/cut_off";
  for (std::size_t size = 0; size < whole.size(); size += whole.size() / 50 + 1) {
    std::ofstream(path, std::ios::binary) << std::string_view(whole).substr(0, size);
    EXPECT_EQ(find("_end", "_ending", path.c_str()), 0U) << size;
  }
  EXPECT_EQ(find("_end", "_ending", "/no/such/file"), 0U);
}

// Any field may have any value: nothing is read outside of the buffer, and it ends.
TEST_F(FileSymbols, EndsWhateverTheFileSays) {
  std::ifstream file(kSelf, std::ios::binary);
  std::string whole((std::istreambuf_iterator<char>(file)), {});
  Elf64_Ehdr header{};
  std::memcpy(&header, whole.data(), sizeof(header));
  const std::string path = testing::TempDir() + "/changed";
  for (std::size_t section = 0; section < header.e_shnum; ++section) {
    for (const std::size_t field : {offsetof(Elf64_Shdr, sh_offset), offsetof(Elf64_Shdr, sh_size),
                                    offsetof(Elf64_Shdr, sh_link), offsetof(Elf64_Shdr, sh_type)}) {
      std::string changed = whole;
      std::memset(changed.data() + header.e_shoff + section * sizeof(Elf64_Shdr) + field, 0x7f, 4);
      std::ofstream(path, std::ios::binary) << changed;
      const std::uint64_t found = find("_end", "_ending", path.c_str());
      EXPECT_TRUE(found == 0 || program_.bias + found == reinterpret_cast<std::uint64_t>(&pair_of_end));
    }
  }
}

}  // namespace
}  // namespace whyrss::shim
