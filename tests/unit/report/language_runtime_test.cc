// Whose lines are recorded where an interpreter or a virtual machine runs the program.
#include "report/verdicts/language_runtime.h"

#include <gtest/gtest.h>

#include "literal_accounts.h"

namespace whyrss::language_runtime_test {
namespace {

constexpr std::int64_t kWhole = 100 << 20;

// The language that is said of memory of which `function` of `module` asked for `bytes`.
std::string language_of(const std::string& function, const std::string& module, std::int64_t bytes = kWhole) {
  StackTable stacks;
  SiteView site;
  site.stack = literal::native_stack(stacks, {{function, module}});
  site.growth = bytes;
  const LanguageRuntime* runtime = runtime_behind(stacks, {site}, kWhole);
  return runtime == nullptr ? "" : std::string(runtime->language);
}

TEST(LanguageRuntime, IsKnownByItsLibrary) {
  EXPECT_EQ(language_of("os::pd_commit_memory(char*)", "/usr/lib/jvm/java-17/lib/server/libjvm.so"), "Java");
  EXPECT_EQ(language_of("Perl_hv_common", "/usr/bin/perl"), "Perl");
  EXPECT_EQ(language_of("Perl_hv_common", "/usr/lib/x86_64-linux-gnu/libperl.so.5.36"), "Perl");
  EXPECT_EQ(language_of("zend_hash_real_init_mixed", "/usr/bin/php8.2"), "PHP");
  EXPECT_EQ(language_of("rb_str_concat_literals", "/usr/lib/x86_64-linux-gnu/libruby-3.1.so.3.1"), "Ruby");
  EXPECT_EQ(language_of("v8::internal::Heap::Allocate()", "/usr/bin/node"), "JavaScript");
  EXPECT_EQ(language_of("node::Buffer::New(unsigned long)", "/usr/lib/libnode.so.108"), "JavaScript");
}

TEST(LanguageRuntime, OfGoIsKnownByItsFunctions) {
  EXPECT_EQ(language_of("x_cgo_mmap", "/home/u/job"), "Go");
  EXPECT_EQ(language_of("runtime.sysReserve", "/home/u/job"), "Go");
  EXPECT_EQ(language_of("runtime::start()", "/home/u/job"), "");
}

TEST(LanguageRuntime, ProgramsOfASimilarNameAreNone) {
  EXPECT_EQ(language_of("Chain::grow()", "/home/u/bin/node"), "");
  EXPECT_EQ(language_of("noise", "/usr/lib/libperlin.so.1"), "");
  EXPECT_EQ(language_of("run", "/home/u/rubyist"), "");
  EXPECT_EQ(language_of("run", "/home/u/job"), "");
}

TEST(LanguageRuntime, HasMoreThanHalfOfIt) {
  EXPECT_EQ(language_of("Perl_hv_common", "/usr/bin/perl", kWhole / 2 + 1), "Perl");
  EXPECT_EQ(language_of("Perl_hv_common", "/usr/bin/perl", kWhole / 2), "");
}

TEST(LanguageRuntime, SaysThatNoLineOfTheProgramIsRecorded) {
  EXPECT_EQ(runtime_sentence({.name = "Node.js", .language = "JavaScript", .advice = ""}),
            " Node.js asked for it: which line of JavaScript it was for is not recorded.");
}

}  // namespace
}  // namespace whyrss::language_runtime_test
