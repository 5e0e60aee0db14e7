#include "shim/sys/symbol_table.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <link.h>

#include <array>
#include <cstring>
#include <string>

namespace whyrss::shim {
namespace {

SymbolTable table_of(void* handle) {
  const auto* image = static_cast<const link_map*>(handle);
  return {image->l_ld, image->l_addr};
}

// Every name that dlsym finds lies where the table says.
TEST(SymbolTable, FindsWhatTheLoaderFinds) {
  void* libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(libc, nullptr);
  const SymbolTable symbols = table_of(libc);
  for (const char* name : {"malloc", "mmap64", "pthread_create", "posix_spawn", "fork", "environ", "__environ",
                           "sigaltstack", "quick_exit", "dl_iterate_phdr"})
    EXPECT_EQ(static_cast<void*>(symbols.find(name).address), dlsym(libc, name)) << name;
  EXPECT_STREQ(symbols.library_name(), "libc.so.6");
  EXPECT_GT(symbols.find("malloc").size_bytes, 16U);
}

// memcpy is chosen at run time, and has an older version that new programs may not bind to.
TEST(SymbolTable, TakesTheDefaultVersionAndAsksIndirectFunctions) {
  void* libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  auto* copy = reinterpret_cast<void* (*)(void*, const void*, std::size_t)>(table_of(libc).find("memcpy").address);
  ASSERT_EQ(reinterpret_cast<void*>(copy), dlsym(libc, "memcpy"));
  std::array<char, 6> text{};
  copy(text.data(), "hello", 6);
  EXPECT_STREQ(text.data(), "hello");
}

TEST(SymbolTable, DoesNotFindWhatTheImageOnlyUses) {
  const SymbolTable program = table_of(dlopen(nullptr, RTLD_NOW));
  EXPECT_EQ(program.find("no_such_function").address, nullptr);
  EXPECT_EQ(program.find("__libc_start_main").address, nullptr);
  EXPECT_EQ(program.find("").address, nullptr);
}

// Thread-local variables have no address of their own.
TEST(SymbolTable, LeavesThreadLocalVariablesOut) {
  EXPECT_EQ(table_of(dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD)).find("errno").address, nullptr);
}

TEST(SymbolTable, AnImageWithoutTablesHasNoSymbols) {
  EXPECT_EQ(SymbolTable().find("malloc").address, nullptr);
  EXPECT_STREQ(SymbolTable().library_name(), "");
  constexpr Elf64_Dyn kEmpty{.d_tag = DT_NULL, .d_un = {0}};
  EXPECT_EQ(SymbolTable(&kEmpty, 0).find("malloc").address, nullptr);
}

class SymbolTableByHash : public testing::TestWithParam<std::string> {};

// The same plugin with either kind of hash table.
TEST_P(SymbolTableByHash, FindsEveryFunction) {
  void* plugin = dlopen(GetParam().c_str(), RTLD_NOW);
  ASSERT_NE(plugin, nullptr) << dlerror();
  const SymbolTable symbols = table_of(plugin);
  for (int i = 10; i < 50; ++i) {
    const std::string name = "function_" + std::to_string(i);
    ASSERT_NE(dlsym(plugin, name.c_str()), nullptr) << name;
    EXPECT_EQ(static_cast<void*>(symbols.find(name.c_str()).address), dlsym(plugin, name.c_str())) << name;
  }
  EXPECT_EQ(symbols.find("function_50").address, nullptr);
}

INSTANTIATE_TEST_SUITE_P(Both, SymbolTableByHash, testing::Values(WHYRSS_GNU_HASH_PLUGIN, WHYRSS_SYSV_HASH_PLUGIN));

}  // namespace
}  // namespace whyrss::shim
