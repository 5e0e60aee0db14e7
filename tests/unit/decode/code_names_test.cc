// Other names for files of Python code: what a notebook says of its cells.
#include "decode/code_names.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "file_tree.h"

namespace whyrss::code_names_test {
namespace {

class CodeNames : public ::testing::Test {
 protected:
  void write(const std::string& text) const { std::ofstream(tree_.path() + "/code_names.json") << text; }

  // The files of a Python frame and of a native one of the same file, after what is in the folder was applied.
  std::pair<std::string, std::string> applied() {
    StackTable stacks;
    const FrameId python = stacks.intern(
        Frame{.kind = FrameKind::python, .function = "f", .file = "/tmp/k/166.py", .line = 3, .column = 5});
    const FrameId native = stacks.intern(Frame{.function = "g", .file = "/tmp/k/166.py", .line = 4});
    const StackId stack = stacks.intern({native, python});
    notes_.clear();
    apply_code_names(*Folder::open(tree_.path()), stacks, notes_);
    EXPECT_EQ(stacks[stack], (std::vector<FrameId>{native, python}));
    EXPECT_EQ(stacks[python].function, "f");
    EXPECT_EQ(stacks[python].line, 3);
    EXPECT_EQ(stacks[python].column, 5);
    return {stacks[python].file, stacks[native].file};
  }

  FileTree tree_;
  std::vector<std::string> notes_;
};

using Files = std::pair<std::string, std::string>;
const Files kAsTheyWere{"/tmp/k/166.py", "/tmp/k/166.py"};

TEST_F(CodeNames, PythonFilesAreRenamed) {
  write(R"({"/tmp/k/166.py": "In[3]", "/tmp/k/1.py": "In[1]"})");
  EXPECT_EQ(applied(), (Files{"In[3]", "/tmp/k/166.py"}));
  EXPECT_TRUE(notes_.empty());
}

TEST_F(CodeNames, WithoutTheFileAllStays) {
  EXPECT_EQ(applied(), kAsTheyWere);
  EXPECT_TRUE(notes_.empty());
}

TEST_F(CodeNames, DamageCostsNamesOnlyAndIsSaid) {
  for (const char* text : {"", "{", "[]", "3", R"("x")", "{\"a\": \xff}"}) {
    write(text);
    EXPECT_EQ(applied(), kAsTheyWere) << text;
    ASSERT_EQ(notes_.size(), 1U) << text;
    EXPECT_TRUE(notes_.front().starts_with("code_names.json: ")) << notes_.front();
  }
}

TEST_F(CodeNames, ValuesOfAnotherTypeAreLeftOut) {
  write(R"({"/tmp/k/166.py": ["In[3]"], "/a": "", "/b": null})");
  EXPECT_EQ(applied(), kAsTheyWere);
}

TEST_F(CodeNames, OnlyAFileIsRead) {
  std::filesystem::create_directory(tree_.path() + "/code_names.json");
  EXPECT_EQ(applied(), kAsTheyWere);
  EXPECT_EQ(notes_.size(), 1U);
  std::filesystem::remove(tree_.path() + "/code_names.json");
  std::filesystem::create_symlink("/dev/zero", tree_.path() + "/code_names.json");
  EXPECT_EQ(applied(), kAsTheyWere);
  EXPECT_EQ(notes_.size(), 1U);
}

}  // namespace
}  // namespace whyrss::code_names_test
