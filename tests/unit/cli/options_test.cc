// What the command line means.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cli/command_line.h"
#include "cli/env_command.h"
#include "cli/fail_if.h"
#include "cli/help_text.h"
#include "cli/near_miss.h"
#include "cli/shell_words.h"
#include "cli/size_option.h"
#include "cli/verbs.h"
#include "literal_accounts.h"
#include "report/view/build_view.h"
#include "text_width.h"

namespace whyrss::options_test {
namespace {

using Words = std::vector<std::string>;

template <typename T>
T parsed(const Words& words) {
  const CommandLine line = parse_command_line(words);
  if (const auto* error = std::get_if<UsageError>(&line)) ADD_FAILURE() << error->message;
  return std::get<T>(line);
}

UsageError refused(const Words& words) {
  const CommandLine line = parse_command_line(words);
  EXPECT_TRUE(std::holds_alternative<UsageError>(line));
  return std::holds_alternative<UsageError>(line) ? std::get<UsageError>(line) : UsageError{"", 0};
}

TEST(CommandLine, ProgramWithoutVerbIsRecorded) {
  EXPECT_EQ(parsed<RecordOptions>({"python", "a.py", "-o", "x"}).command, (Words{"python", "a.py", "-o", "x"}));
  const auto with_options = parsed<RecordOptions>({"-o", "DIR", "python", "--help"});
  EXPECT_EQ(with_options.output, "DIR");
  EXPECT_EQ(with_options.command, (Words{"python", "--help"}));
}

TEST(CommandLine, OptionsEndAtTheFirstOtherWord) {
  const auto options = parsed<RecordOptions>({"record", "-fq", "--mode=exact", "-oDIR", "prog", "-f", "--", "x"});
  EXPECT_TRUE(options.force);
  EXPECT_TRUE(options.quiet);
  EXPECT_EQ(options.mode, "exact");
  EXPECT_EQ(options.output, "DIR");
  EXPECT_EQ(options.command, (Words{"prog", "-f", "--", "x"}));
}

TEST(CommandLine, MetricsOfRecord) {
  const auto options = parsed<RecordOptions>({"record", "--metrics", ":9464", "--metrics-file=a,b.prom", "prog"});
  EXPECT_EQ(options.metrics, ":9464");
  EXPECT_EQ(options.metrics_file, "a,b.prom");
  EXPECT_EQ(refused({"record", "--metrics", "example.org:80", "prog"}).exit_status, 125);
}

TEST(CommandLine, DoubleDashSettlesDoubts) {
  EXPECT_EQ(parsed<RecordOptions>({"record", "--", "report", "x"}).command, (Words{"report", "x"}));
  EXPECT_EQ(parsed<RecordOptions>({"--", "-odd-name"}).command, (Words{"-odd-name"}));
  EXPECT_EQ(parsed<RecordOptions>({"record", "--", "--", "x"}).command, (Words{"--", "x"}));
  EXPECT_EQ(parsed<RecordOptions>({"record", "-o", "--", "x"}).output, "--");  // an option takes its word first
  EXPECT_EQ(parsed<RecordOptions>({"record", "", "x"}).command, (Words{"", "x"}));
}

TEST(CommandLine, CompareAllocators) {
  const auto options =
      parsed<CompareOptions>({"compare-allocators", "--overhead", "1", "-a", "glibc,/opt/libx.so", "-a",
                              "mimalloc,jemalloc:MALLOC_CONF=a:0,b:1 X=2", "--repeat", "5", "prog", "-a"});
  EXPECT_EQ(options.command, (Words{"prog", "-a"}));
  EXPECT_EQ(options.repeat, 5);
  EXPECT_EQ(options.overhead_percent, 1);
  ASSERT_EQ(options.allocators.size(), 4U);
  EXPECT_EQ(options.allocators[1].name, "/opt/libx.so");
  EXPECT_TRUE(options.allocators[2].settings.empty());
  EXPECT_EQ(options.allocators[3].name, "jemalloc");
  EXPECT_EQ(options.allocators[3].settings, (Words{"MALLOC_CONF=a:0,b:1", "X=2"}));
  EXPECT_TRUE(parsed<CompareOptions>({"compare-allocators", "prog"}).allocators.empty());
  for (const char* list : {"", ",", "glibc,", "glibc:", "glibc:x", "glibc:=1", ":A=1"})
    EXPECT_EQ(refused({"compare-allocators", "-a", list, "prog"}).exit_status, 2) << list;
  EXPECT_EQ(refused({"compare-allocators"}).exit_status, 2);
  EXPECT_EQ(refused({"compare-allocators", "--repeat", "0", "prog"}).exit_status, 2);
}

TEST(CommandLine, RecordValues) {
  const auto options = parsed<RecordOptions>(
      {"record",    "--sample-bytes",   "2MiB", "--touch",          "61",    "--liveness",   "off",  "--unwinder",
       "libunwind", "--write-tracking", "off",  "--preload",        "/x.so", "--memory-max", "1GiB", "--exe",
       "py*",       "--overhead",       "0.5",  "--python-objects", "off",   "--seed",       "7",    "prog"});
  EXPECT_EQ(options.sample_bytes, 2U << 20);
  EXPECT_EQ(options.touch, "61");
  EXPECT_FALSE(options.liveness);
  EXPECT_FALSE(options.write_tracking);
  EXPECT_FALSE(options.python_objects);
  EXPECT_EQ(options.unwinder, "libunwind");
  EXPECT_EQ(options.preload, "/x.so");
  EXPECT_EQ(options.memory_max, "1GiB");
  EXPECT_EQ(options.exe, "py*");
  EXPECT_EQ(options.overhead_percent, 0.5);
  EXPECT_EQ(options.seed, 7U);
  const auto defaults = parsed<RecordOptions>({"prog"});
  EXPECT_EQ(defaults.sample_bytes, 64U << 10);
  EXPECT_EQ(defaults.touch, "auto");
  EXPECT_TRUE(defaults.liveness);
  EXPECT_TRUE(defaults.write_tracking);
  EXPECT_TRUE(defaults.python_objects);
  EXPECT_EQ(defaults.overhead_percent, 3);
  EXPECT_EQ(defaults.seed, 0U);
}

TEST(CommandLine, RecordFaultsLeaveTheCommandsStatusesAlone) {
  for (const Words& words : {Words{"record"}, Words{"record", "--"}, Words{"record", "--no-such", "x"},
                             Words{"record", "--mode", "fast", "x"}, Words{"record", "--touch", "0", "x"},
                             Words{"record", "--touch", "many", "x"}, Words{"record", "--sample-bytes", "0", "x"},
                             Words{"record", "--sample-bytes", "-1", "x"}, Words{"record", "--memory-max", "much", "x"},
                             Words{"record", "--seed", "0", "x"}, Words{"record", "--overhead", "0", "x"},
                             Words{"record", "--overhead", "101", "x"}, Words{"record", "-o"}}) {
    const UsageError error = refused(words);
    EXPECT_EQ(error.exit_status, 125) << words.back();
    EXPECT_FALSE(error.message.empty());
    EXPECT_EQ(error.message.find('\n'), std::string::npos);
  }
}

TEST(CommandLine, Report) {
  const auto options =
      parsed<ReportOptions>({"report", "DIR", "--format", "json", "-o", "out", "--from", "load", "--to", "2.5", "--pid",
                             "7", "--top", "3", "--by", "touch", "--fail-if", "rss>1"});
  EXPECT_EQ(options.recording, "DIR");
  EXPECT_EQ(options.format, "json");
  EXPECT_EQ(options.output, "out");
  EXPECT_EQ(options.from, "load");
  EXPECT_EQ(options.to, "2.5");
  EXPECT_EQ(options.pid, 7);
  EXPECT_EQ(options.top, 3U);
  EXPECT_EQ(options.by, "touch");
  EXPECT_EQ(options.fail_if, "rss>1");
  const auto defaults = parsed<ReportOptions>({"report", "DIR"});
  EXPECT_EQ(defaults.format, "text");
  EXPECT_EQ(defaults.pid, std::nullopt);
  EXPECT_EQ(defaults.top, std::nullopt);
}

TEST(CommandLine, ReportUsage) {
  for (const Words& words : {Words{"report"}, Words{"report", "a", "b"}, Words{"report", "a", "--format", "yaml"},
                             Words{"report", "a", "--pid", "x"}, Words{"report", "a", "--top", "0"},
                             Words{"report", "a", "--by", "luck"}, Words{"report", "a", "--no-such"}})
    EXPECT_EQ(refused(words).exit_status, 2) << words.back();
}

TEST(CommandLine, CollectAsTheLibraryStartsIt) {
  const auto options =
      parsed<CollectOptions>({"collect", "--output", "/d", "--target", "12", "--ready-fd", "5", "--control-fd", "6",
                              "--force", "--options", "touch=off", "--", "p", "-x"});
  EXPECT_EQ(options.output, "/d");
  EXPECT_EQ(options.target, 12);
  EXPECT_EQ(options.ready_fd, 5);
  EXPECT_EQ(options.control_fd, 6);
  EXPECT_TRUE(options.force);
  EXPECT_EQ(options.options, "touch=off");
  EXPECT_EQ(options.command, (Words{"p", "-x"}));
}

TEST(CommandLine, DoctorAndEnv) {
  EXPECT_EQ(parsed<DoctorOptions>({"doctor"}).command, Words{});
  EXPECT_EQ(parsed<DoctorOptions>({"doctor", "--", "python", "a.py"}).command, (Words{"python", "a.py"}));
  EXPECT_EQ(parsed<EnvOptions>({"env", "-o", "d", "--options", "mode=exact"}).output, "d");
}

TEST(CommandLine, Prove) {
  EXPECT_EQ(parsed<ProveOptions>({"prove", "17"}).target, "17");
  EXPECT_FALSE(parsed<ProveOptions>({"prove", "17"}).tree);
  EXPECT_TRUE(parsed<ProveOptions>({"prove", "--tree", "17"}).tree);
  EXPECT_EQ(refused({"prove"}).exit_status, 2);
  EXPECT_EQ(refused({"prove", "DIR", "--memory-max", ""}).exit_status, 2);
}

TEST(CommandLine, Export) {
  const auto options =
      parsed<ExportOptions>({"export", "DIR", "--format", "collapsed", "--value=growth", "--pid", "7"});
  EXPECT_EQ(options.recording, "DIR");
  EXPECT_EQ(options.value, ExportValue::growth);
  EXPECT_EQ(options.part.pid, 7);
  EXPECT_EQ(parsed<ExportOptions>({"export", "DIR", "--format", "csv"}).value, ExportValue::resident);
  for (const Words& words :
       {Words{"export", "DIR"}, Words{"export", "--format", "csv"}, Words{"export", "DIR", "--format", "gif"},
        Words{"export", "A", "B", "--format", "csv"}, Words{"export", "DIR", "--format", "pprof", "--value", "growth"}})
    EXPECT_EQ(refused(words).exit_status, 2);
  const std::string help = parsed<ShowText>({"export", "--help"}).text;
  for (const ExportFormat& format : export_formats()) EXPECT_NE(help.find(format.name), std::string::npos);
}

TEST(CommandLine, Diff) {
  const auto two = parsed<DiffOptions>({"diff", "A", "B", "--value", "at_peak", "--top=3", "--pid-b", "7"});
  EXPECT_EQ(two.a.recording, "A");
  EXPECT_EQ(two.b.recording, "B");
  EXPECT_EQ(two.value, SiteFigure::at_peak);
  EXPECT_EQ(two.top, 3U);
  EXPECT_EQ(two.b.pid, 7);
  EXPECT_FALSE(two.a.pid);
  const auto phases = parsed<DiffOptions>({"diff", "A", "--phase-a", "one", "--phase-b", "two"});
  EXPECT_EQ(phases.b.recording, "A");
  EXPECT_EQ(phases.b.phase, "two");
  EXPECT_FALSE(phases.value.has_value());
  EXPECT_EQ(parsed<DiffOptions>({"diff", "A", "B", "--format", "html"}).format, "html");
  for (const Words& words : {Words{"diff"}, Words{"diff", "A"}, Words{"diff", "A", "--phase-a=x", "--phase-b=x"},
                             Words{"diff", "A", "B", "--format", "pdf"}, Words{"diff", "A", "B", "C"}})
    EXPECT_EQ(refused(words).exit_status, 2);
}

TEST(CommandLine, ReduceAndMerge) {
  const auto reduce = parsed<ReduceOptions>({"reduce", "A", "B", "-o", "part"});
  EXPECT_EQ(reduce.recordings, (Words{"A", "B"}));
  EXPECT_EQ(reduce.output, "part");
  const auto merge = parsed<MergeOptions>({"merge", "-o", "job", "--nodes", "node[1-3]", "a", "b", "--skip-damaged"});
  EXPECT_EQ(merge.inputs, (Words{"a", "b"}));
  EXPECT_EQ(merge.nodes, "node[1-3]");
  EXPECT_TRUE(merge.skip_damaged);
  EXPECT_FALSE(merge.several_jobs);
  for (const Words& words : {Words{"reduce", "A"}, Words{"reduce", "-o", "x"}, Words{"merge", "-o", "x"},
                             Words{"merge", "a", "-o", "x", "--nodes", "n[1-"}})
    EXPECT_EQ(refused(words).exit_status, 2);
}

TEST(CommandLine, Top) {
  const auto processes = parsed<TopOptions>({"top", "-i", "0.5", "-n", "3", "12", "34"});
  EXPECT_EQ(processes.targets, (Words{"12", "34"}));
  EXPECT_EQ(processes.interval_s, 0.5);
  EXPECT_EQ(processes.count, 3U);
  EXPECT_FALSE(processes.record.has_value());
  EXPECT_TRUE(parsed<TopOptions>({"top"}).targets.empty());

  // Options before `--` are the screen's or record's; all words behind it are the command's.
  const auto command =
      parsed<TopOptions>({"top", "-o", "a b", "-n", "3", "--mode", "exact", "--", "cmd", "-n", "--", "x"});
  ASSERT_TRUE(command.record.has_value());
  EXPECT_EQ(command.record->output, "a b");
  EXPECT_EQ(command.record->mode, "exact");
  EXPECT_EQ(command.record->command, (Words{"cmd", "-n", "--", "x"}));
  EXPECT_EQ(command.count, 3U);
  for (const Words& words :
       {Words{"top", "-i", "0"}, Words{"top", "-i", "nan"}, Words{"top", "-i", "4000"}, Words{"top", "-n", "0"}})
    EXPECT_EQ(refused(words).exit_status, 2);
  EXPECT_EQ(refused({"top", "--"}).exit_status, 125);
  EXPECT_NE(refused({"top", "-f", "12"}).message.find("with -- CMD"), std::string::npos);
  EXPECT_EQ(refused({"top", "--no-such", "--", "cmd"}).exit_status, 125);
  EXPECT_EQ(parsed<RecordOptions>({"record", "top"}).command, Words{"top"});
}

TEST(CommandLine, HelpAndVersion) {
  EXPECT_EQ(parsed<ShowText>({"--version"}).text.rfind("whyrss ", 0), 0U);
  EXPECT_NE(parsed<ShowText>({"report", "--help"}).text.find("--fail-if"), std::string::npos);
  EXPECT_NE(parsed<ShowText>({"record", "--help"}).text.find("--sample-bytes"), std::string::npos);
  EXPECT_EQ(parsed<RecordOptions>({"python", "--help"}).command, (Words{"python", "--help"}));
  // The usage lines as they are typed.
  for (const auto& [verb, usage] : std::vector<std::pair<std::string, std::string>>{
           {"record", "Usage: whyrss record [OPTIONS] -- CMD ARGS...\n"},
           {"report", "Usage: whyrss report [OPTIONS] recording\n"},
           {"compare-allocators", "Usage: whyrss compare-allocators [OPTIONS] -- CMD ARGS...\n"},
           {"prove", "Usage: whyrss prove [OPTIONS] target\n"},
           {"doctor", "Usage: whyrss doctor [OPTIONS] [-- CMD ARGS...]\n"}})
    EXPECT_NE(parsed<ShowText>({verb, "--help"}).text.find(usage), std::string::npos)
        << parsed<ShowText>({verb, "--help"}).text;
  EXPECT_EQ(refused({}).exit_status, 2);
}

TEST(CommandLine, HelpAndVersionAsVerbs) {
  EXPECT_EQ(parsed<ShowText>({"help"}).text, parsed<ShowText>({"--help"}).text);
  EXPECT_EQ(parsed<ShowText>({"help", "report"}).text, parsed<ShowText>({"report", "--help"}).text);
  EXPECT_EQ(parsed<ShowText>({"help", "--help"}).text, parsed<ShowText>({"--help"}).text);
  EXPECT_EQ(parsed<ShowText>({"version"}).text, parsed<ShowText>({"--version"}).text);
  EXPECT_NE(refused({"help", "reprot"}).message.find("did you mean report?"), std::string::npos);
  EXPECT_EQ(parsed<RecordOptions>({"record", "help"}).command, Words{"help"});
}

TEST(CommandLine, EveryVerbHasExamples) {
  for (const std::string_view verb : kVerbs) {
    if (verb == "collect" || verb == "help" || verb == "version") continue;
    const std::string help = parsed<ShowText>({std::string(verb), "--help"}).text;
    const std::size_t at = help.find("\nExamples:\n");
    ASSERT_NE(at, std::string::npos) << verb;
    EXPECT_NE(help.find(fmt::format("whyrss {}", verb), at), std::string::npos) << verb;
  }
}

TEST(CommandLine, HelpFitsTheTerminal) {
  for (const std::string_view verb : kVerbs) {
    const std::string help = parsed<ShowText>({std::string(verb), "--help"}).text;
    for (const std::size_t columns : {60U, 71U, 100U}) {
      const std::string shown = wrapped_help(help, columns);
      EXPECT_LE(widest_line(columns < 71 ? shown.substr(0, shown.find("\nExamples:")) : shown), columns) << shown;
      EXPECT_EQ(shown.find("…"), std::string::npos) << shown;  // nothing is left out
    }
    EXPECT_EQ(wrapped_help(help, 1000), help);
  }
  EXPECT_EQ(wrapped_help("  --mode TEXT:{sampled,exact} each malloc and each free with its own stack\n", 60),
            "  --mode TEXT:{sampled,exact} each malloc and each free with\n"
            "                              its own stack\n");
  const std::string indent(30, ' ');
  EXPECT_EQ(wrapped_help(indent + "growth, resident or at_peak of each\n", 60),
            indent + "growth, resident or at_peak of\n" + indent + "each\n");
}

TEST(CommandLine, UnknownOptionsAndWordsAreNamed) {
  EXPECT_EQ(refused({"report", "a", "--fromat", "json"}).message,
            "report: there is no option --fromat; did you mean --format? (see whyrss report --help)");
  EXPECT_EQ(refused({"report", "a", "--xx=5"}).message, "report: there is no option --xx (see whyrss report --help)");
  EXPECT_EQ(refused({"report", "a", "b"}).message, "report: a word too many: b (see whyrss report --help)");
  EXPECT_EQ(refused({"report", "a", "--format="}).message, "report: --format needs a value (see whyrss report --help)");
  for (const std::string option : {"--from", "--to"})
    EXPECT_NE(refused({"report", "a", option, ""}).message.find(option + ": must not be empty"), std::string::npos);
}

TEST(CommandLine, AbsurdValues) {
  for (const Words& words : {Words{"record", "--overhead", "nan", "x"}, Words{"record", "--overhead", "inf", "x"},
                             Words{"record", "-o", "", "x"}, Words{"record", "--exe", "", "x"},
                             Words{"record", "-p", "17"}, Words{"-p", "17"}})
    EXPECT_EQ(refused(words).exit_status, 125) << words.at(1);
  EXPECT_NE(refused({"record", "--overhead", "nan", "x"}).message.find("from 0.1 to 100"), std::string::npos);
  EXPECT_NE(refused({"-p", "17"}).message.find("`whyrss prove 17`"), std::string::npos);
  for (const Words& words : {Words{"report", "a", "--top", "-1"}, Words{"report", "a", "-o", ""},
                             Words{"compare-allocators", "-a", "foo", "x"}, Words{"diff", "A", "B", "--top", "-1"}})
    EXPECT_EQ(refused(words).exit_status, 2) << words.at(0);
  EXPECT_NE(refused({"compare-allocators", "-a", "glibc,foo", "x"}).message.find("foo is no allocator"),
            std::string::npos);
  EXPECT_EQ(parsed<CompareOptions>({"compare-allocators", "-a", "libx.so.2", "x"}).allocators.size(), 1U);
}

TEST(CommandLine, WhetherAVerbWasTyped) {
  EXPECT_FALSE(parsed<RecordOptions>({"prog"}).verb_typed);
  EXPECT_TRUE(parsed<RecordOptions>({"record", "prog"}).verb_typed);
}

TEST(NearestWord, AtMostTwoEdits) {
  EXPECT_EQ(nearest_word("reprot", kVerbs), "report");
  EXPECT_EQ(nearest_word("hmtl", kVerbs), "html");
  EXPECT_EQ(nearest_word("evn", kVerbs), "env");
  EXPECT_EQ(nearest_word("compare-alocator", kVerbs), "compare-allocators");
  for (const char* far : {"", "ls", "cat", "gcc", "python3", "rprtt2"}) EXPECT_EQ(nearest_word(far, kVerbs), "") << far;
}

TEST(ShellWord, QuotedWhereItNeedsIt) {
  EXPECT_EQ(shell_word("/tmp/a-b.whyrss"), "/tmp/a-b.whyrss");
  EXPECT_EQ(shell_word("it's here"), "'it'\\''s here'");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_command({"sh", "-c", "echo $HOME"}), "sh -c 'echo $HOME'");
}

TEST(Size, AsTyped) {
  EXPECT_EQ(*parse_size("64KiB"), 65536);
  EXPECT_EQ(*parse_size("64k"), 65536);
  EXPECT_EQ(*parse_size("2GiB"), 2LL << 30);
  EXPECT_EQ(*parse_size("1.5 MiB"), 1536 * 1024);
  EXPECT_EQ(*parse_size("10MB"), 10'000'000);
  EXPECT_EQ(*parse_size("0"), 0);
  for (const char* wrong : {"", "KiB", "-1", "1e400", "nan", "inf", "10 bananas", "99999999999TiB", "0x10"})
    EXPECT_FALSE(parse_size(wrong).ok()) << wrong;
}

TEST(FailIf, GrowthOfCausesAndTotals) {
  const RecordingAccount recording = literal::quickstart();
  const View view = build_view(recording, whole_life(recording));
  const auto check = [&](const std::string& text) {
    const Result<FailIf> condition = parse_fail_if(text);
    EXPECT_TRUE(condition.ok()) << text;
    return *holds(*condition, view);
  };
  EXPECT_TRUE(check("fork_cow>247MiB"));
  EXPECT_FALSE(check("fork_cow > 248MiB"));
  EXPECT_TRUE(check("fork_cow>=248MiB"));
  EXPECT_TRUE(check("rss>900MiB"));
  EXPECT_FALSE(check("device>0"));
  EXPECT_TRUE(check("uss>800MiB"));
  EXPECT_TRUE(check("pss>853MiB"));
}

TEST(FailIf, WhatIsNotKnownIsNotPassed) {
  RecordingAccount recording = literal::quickstart();
  recording.processes[0].totals.clear();
  const View view = build_view(recording, whole_life(recording));
  EXPECT_FALSE(holds(*parse_fail_if("pss>1"), view).ok());
}

TEST(FailIf, Nonsense) {
  for (const char* text : {"", "fork_cow", "fork_cow>", "bananas>1GiB", ">1GiB", "rss<1GiB", "rss>1GiB extra"})
    EXPECT_FALSE(parse_fail_if(text).ok()) << text;
  EXPECT_NE(parse_fail_if("cow>1").error().find("fork_cow"), std::string::npos);
}

TEST(Env, LinesSurviveTheShell) {
  EXPECT_EQ(env_lines("/opt/it's/libwhyrss.so", "/d/%p", "touch=off"),
            "export LD_PRELOAD='/opt/it'\\''s/libwhyrss.so'\"${LD_PRELOAD:+:$LD_PRELOAD}\"\n"
            "export WHYRSS_OUTPUT='/d/%p'\n"
            "export WHYRSS_OPTS='touch=off'\n");
}

TEST(Env, OptionsOfLaunchers) {
  EXPECT_EQ(parsed<EnvOptions>({"env", "--for", "slurm"}).launcher, "slurm");
  EXPECT_EQ(refused({"env", "--for", "abacus"}).exit_status, 2);
  EXPECT_EQ(slurm_options("/opt/w/lib/libwhyrss.so", "/d/%j-%h", "mode=exact"),
            "--export=ALL,LD_PRELOAD='/opt/w/lib/libwhyrss.so',WHYRSS_OUTPUT='/d/%j-%h',WHYRSS_OPTS='mode=exact'\n");
  EXPECT_EQ(docker_options("/opt/w/lib/libwhyrss.so", "/my data/%j", "mode=exact,touch=off"),
            "-v '/opt/w':'/opt/w':ro -v '/my data':'/my data' -e LD_PRELOAD='/opt/w/lib/libwhyrss.so' "
            "-e WHYRSS_OUTPUT='/my data/%j' -e WHYRSS_OPTS='mode=exact,touch=off'\n");
}

}  // namespace
}  // namespace whyrss::options_test
