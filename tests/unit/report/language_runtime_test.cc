// Whose lines are recorded where an interpreter or a virtual machine runs the program.
#include "report/verdicts/language_runtime.h"

#include <gtest/gtest.h>

#include "literal_accounts.h"
#include "report/view/blame_sums.h"
#include "report/view/line_text.h"

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

// Functions of Go's, Java's and Node's say nothing to who runs a program; those of the others do.
TEST(LanguageRuntime, StandsForItsLines) {
  StackTable stacks;
  std::vector<SiteView> sites(3);
  const auto text_of = [&](const std::string& module) {
    sites[0].stack = literal::native_stack(stacks, {{"os::commit(char*)", module}});
    sites[1].stack = literal::native_stack(stacks, {{"os::reserve(char*)", module}});
    sites[2].stack = literal::native_stack(stacks, {{"fill", "/home/u/libfill.so"}});
    return kept_where(growth_by_line(stacks, pointers(sites)), kWhole, "mapped");
  };
  sites[0].growth = kWhole / 2;
  sites[1].growth = kWhole / 4;
  sites[2].growth = kWhole / 4;
  EXPECT_EQ(text_of("/usr/lib/libjvm.so"),
            " (most mapped in the Java virtual machine: 75 MiB, 25 MiB in fill (libfill.so))");
  EXPECT_EQ(text_of("/usr/lib/libruby-3.1.so.3.1").find(" (50 MiB of it mapped in os::"), 0U);
}

TEST(LanguageRuntime, SaysThatNoLineOfTheProgramIsRecorded) {
  EXPECT_EQ(runtime_sentence({.name = "the Java virtual machine", .language = "Java", .advice = ""}),
            " The Java virtual machine asked for it: which line of Java it was for is not recorded.");
  EXPECT_EQ(runtime_sentence({.name = "Node.js", .language = "JavaScript", .advice = ""}),
            " Node.js asked for it: which line of JavaScript it was for is not recorded.");
}

}  // namespace
}  // namespace whyrss::language_runtime_test
