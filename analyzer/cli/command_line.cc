#include "cli/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <limits>
#include <string_view>

#include "cli/size_option.h"

namespace whyrss {
namespace {

constexpr int kUsage = 2, kCannotRecord = 125;
constexpr const char* kVersion = "whyrss " WHYRSS_VERSION "\n";
constexpr const char* kHelp =
    R"(whyrss tells why the resident memory (RSS) of a program grew, by cause and line of code.

  whyrss CMD ARGS...              record CMD and say why its memory grew
  whyrss record [options] -- CMD  the same with options
  whyrss report DIR               the whole report of a recording
  whyrss compare-allocators CMD   what CMD needs under glibc, jemalloc, tcmalloc and mimalloc
  whyrss prove PID|DIR            show that file cache is no leak: have the kernel take it back
  whyrss doctor [-- CMD]          what works on this machine and for CMD
  whyrss env [-o DIR]             lines to export for jobs whose command line cannot change

`whyrss VERB --help` lists a verb's options. `whyrss --version` says which this is.
)";

constexpr std::array<std::string_view, 7> kVerbs{"record",  "report", "compare-allocators", "prove", "doctor",
                                                 "collect", "env"};
// Of the contract, still to come. They are verbs already, so that no script starts to depend on `whyrss top`
// recording the program of that name.
constexpr std::array<std::string_view, 5> kLaterVerbs{"html", "diff", "top", "export", "merge"};

using Words = std::vector<std::string>;

struct Split {
  Words options, command;
};

// Whether the word after this option belongs to it.
bool takes_next_word(const CLI::App& app, const std::string& word) {
  const bool is_long = word.size() > 2 && word[1] == '-';
  if (is_long && word.find('=') != std::string::npos) return false;
  const std::string name = is_long ? word : word.substr(0, 2);
  const CLI::Option* option = app.get_option_no_throw(name);
  if (option == nullptr || option->get_expected_max() == 0) return false;
  return is_long || word.size() == 2;  // -oDIR holds its value
}

// The command begins at the first word that is neither an option nor an option's value.
Split split_command(const CLI::App& app, const Words& words) {
  Split split;
  std::size_t at = 0;
  for (; at < words.size(); ++at) {
    const std::string& word = words[at];
    if (word == "--") {
      ++at;
      break;
    }
    if (word.size() < 2 || word[0] != '-') break;
    split.options.push_back(word);
    if (takes_next_word(app, word) && at + 1 < words.size()) split.options.push_back(words[++at]);
  }
  split.command.assign(words.begin() + static_cast<std::ptrdiff_t>(std::min(at, words.size())), words.end());
  return split;
}

std::string help_of(const CLI::App& app, std::string_view command) {
  constexpr std::string_view kOptions = "[OPTIONS]";
  std::string text = app.help("whyrss");
  if (const std::size_t at = text.find(kOptions); at != std::string::npos) text.insert(at + kOptions.size(), command);
  return text;
}

// CLI11 wants the words backwards. Nothing: parsed; else what to print, or what is wrong. `command`: what the usage
// line says of the words behind the options.
std::optional<CommandLine> parse_into(CLI::App& app, Words words, int usage_status = kUsage,
                                      std::string_view command = {}) {
  std::reverse(words.begin(), words.end());
  try {
    app.parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    return ShowText{help_of(app, command)};
  } catch (const CLI::Error& error) {
    std::string message = error.what();
    std::replace(message.begin(), message.end(), '\n', ' ');
    return UsageError{app.get_name() + ": " + message + " (see whyrss " + app.get_name() + " --help)", usage_status};
  }
  return std::nullopt;
}

void add_overhead(CLI::App& app, double& percent) {
  app.add_option(
         "--overhead", percent,
         "what looks at the memory may take, in percent of a core or of the job's own CPU time: all of it in the "
         "first minute and while memory moves, else a third (default 3)")
      ->check(CLI::Range(0.1, 100.0));
}

CommandLine parse_record(const Words& words) {
  RecordOptions options;
  std::string sample_bytes = "64KiB", liveness = "on", write_tracking = "on", python_objects = "off";
  CLI::App app("Runs CMD, and says why its memory grew.", "record");
  app.add_option("-o,--output", options.output,
                 "directory of the recording (default whyrss-<program>-<pid>; %p pid, %h host, %j job, %r rank)");
  app.add_flag("-f,--force", options.force, "replace an existing recording");
  app.add_option("--mode", options.mode, "sampled (default), or exact: each malloc and free with its stack")
      ->check(CLI::IsMember({"sampled", "exact"}));
  app.add_option("--sample-bytes", sample_bytes, "mean distance of malloc samples (default 64KiB)");
  app.add_option("--touch", options.touch, "sample each Nth page fault: a number, auto or off");
  app.add_option("--liveness", liveness, "live bytes per page: on or off")->check(CLI::IsMember({"on", "off"}));
  app.add_option("--write-tracking", write_tracking, "writes of fork families to shared pages: on or off")
      ->check(CLI::IsMember({"on", "off"}));
  app.add_option("--python-objects", python_objects,
                 "sample the objects of CPython's own allocator, each with its line: on or off (default off)")
      ->check(CLI::IsMember({"on", "off"}));
  app.add_option(
         "--allocator-stats", options.allocator_stats,
         "ask the allocator for its own counters too: auto, off, or on, also where that reads the program's free "
         "lists (glibc)")
      ->check(CLI::IsMember({"auto", "on", "off"}));
  app.add_option("--unwinder", options.unwinder, "auto or libunwind")->check(CLI::IsMember({"auto", "libunwind"}));
  app.add_option("--preload", options.preload, "an allocator's library, loaded behind ours");
  add_overhead(app, options.overhead_percent);
  const CLI::Option* limit =
      app.add_option("--memory-max", options.memory_max,
                     "run CMD in a memory cgroup of this size, as under a limit of a container or a batch system");
  app.add_option("--exe", options.exe, "which programs of the tree to trace fully (a pattern with *)");
  app.add_flag("-q,--quiet", options.quiet, "print nothing of our own");
  const Split split = split_command(app, words);
  if (auto other = parse_into(app, split.options, kCannotRecord, " -- CMD ARGS...")) return *other;

  const Result<std::int64_t> distance = parse_size(sample_bytes);
  if (!distance || *distance == 0)
    return UsageError{"record: --sample-bytes: " + (distance ? "must be more than 0" : distance.error()),
                      kCannotRecord};
  options.sample_bytes = static_cast<std::uint64_t>(*distance);
  options.liveness = liveness == "on";
  options.write_tracking = write_tracking == "on";
  options.python_objects = python_objects == "on";
  const bool number = !options.touch.empty() && options.touch.size() <= 9 &&
                      options.touch.find_first_not_of("0123456789") == std::string::npos &&
                      options.touch.find_first_not_of('0') != std::string::npos;
  if (options.touch != "auto" && options.touch != "off" && !number)
    return UsageError{"record: --touch " + options.touch + ": expected a number above 0, auto or off", kCannotRecord};
  if (limit->count() > 0)
    if (const auto size = parse_size(options.memory_max); !size || *size == 0)
      return UsageError{"record: --memory-max: " + (size ? "must be more than 0" : size.error()), kCannotRecord};
  if (split.command.empty())
    return UsageError{"record: no command given (whyrss record [options] -- CMD ARGS...)", kCannotRecord};
  options.command = split.command;
  return options;
}

CommandLine parse_report(const Words& words) {
  ReportOptions options;
  int pid = 0;
  std::size_t top = 0;
  CLI::App app("Says why memory grew in a recording.", "report");
  app.add_option("recording", options.recording, "directory of the recording")->required();
  app.add_option("--format", options.format, "text, json or markdown")
      ->check(CLI::IsMember({"text", "json", "markdown"}));
  app.add_option("-o,--output", options.output, "write to this file instead of stdout");
  app.add_option("--from", options.from, "begin of the interval: seconds, a phase's name, or teardown");
  app.add_option("--to", options.to, "end of the interval: seconds, a phase's name, or teardown (the default)");
  auto* pid_option = app.add_option("--pid", pid, "this process alone");
  auto* top_option = app.add_option("--top", top, "lines shown (text), sites kept per cause (json: 1000)")
                         ->check(CLI::Range(std::size_t{1}, std::numeric_limits<std::size_t>::max()));
  app.add_option("--by", options.by, "lines that allocated (alloc) or touched (touch) the memory")
      ->check(CLI::IsMember({"alloc", "touch"}));
  app.add_flag("--stacks", options.stacks, "who called the lines with the most growth (text and markdown)");
  app.add_option("--fail-if", options.fail_if,
                 "exit 3 when this grew more, summed over processes: a cause or rss, pss, uss, as 'fork_cow>2GiB'");
  if (auto other = parse_into(app, words)) return *other;
  if (pid_option->count() > 0) options.pid = pid;
  if (top_option->count() > 0) options.top = top;
  return options;
}

CommandLine parse_compare(const Words& words) {
  CompareOptions options;
  std::vector<std::string> lists;
  CLI::App app("Runs CMD under each allocator, and says which needs what.", "compare-allocators");
  app.add_option("-a,--allocators", lists,
                 "glibc, jemalloc, tcmalloc, mimalloc or a library, with commas between; NAME:VARIABLE=VALUE ... "
                 "gives the last one settings; may be repeated (default: all that are found)")
      ->allow_extra_args(false);
  app.add_option("--repeat", options.repeat, "runs of each, bare and recorded (default 3)")->check(CLI::Range(1, 100));
  app.add_option("--format", options.format, "text, json or markdown")
      ->check(CLI::IsMember({"text", "json", "markdown"}));
  app.add_option("-o,--output", options.output, "write to this file instead of stdout");
  app.add_option("--keep", options.keep, "keep the recordings in this directory");
  app.add_option("--input", options.input, "what each run reads from its stdin (default /dev/null)");
  add_overhead(app, options.overhead_percent);
  app.add_flag("--show-output", options.show_output, "let the output of CMD through; else that of failed runs alone");
  app.add_flag("--own-allocator", options.own_allocator)->group("");
  const Split split = split_command(app, words);
  if (auto other = parse_into(app, split.options, kUsage, " -- CMD ARGS...")) return *other;
  for (const std::string& list : lists) {
    const auto choices = parse_allocators(list);
    if (!choices) return UsageError{"compare-allocators: -a " + list + ": " + choices.error()};
    options.allocators.insert(options.allocators.end(), choices->begin(), choices->end());
  }
  options.command = split.command;
  if (options.command.empty() && !options.own_allocator)
    return UsageError{"compare-allocators: no command given (whyrss compare-allocators [options] -- CMD ARGS...)"};
  return options;
}

CommandLine parse_prove(const Words& words) {
  ProveOptions options;
  CLI::App app("Shows that the file pages of a process are reclaimable, by reclaiming them.", "prove");
  app.add_option("target", options.target, "a process, or the directory of a recording")->required();
  app.add_flag("--tree", options.tree, "of a process: its descendants too");
  const CLI::Option* limit = app.add_option(
      "--memory-max", options.memory_max,
      "of a recording that has ended: the limit under which its command runs again (default: chosen from it)");
  app.add_option("--input", options.input, "what that run reads from its stdin (default /dev/null)");
  app.add_flag("--show-output", options.show_output, "let the output of that run through");
  if (auto other = parse_into(app, words)) return *other;
  if (limit->count() > 0)
    if (const auto size = parse_size(options.memory_max); !size || *size == 0)
      return UsageError{"prove: --memory-max: " + (size ? "must be more than 0" : size.error())};
  return options;
}

CommandLine parse_doctor(const Words& words) {
  DoctorOptions options;
  CLI::App app("What works on this machine, and for CMD.", "doctor");
  const Split split = split_command(app, words);
  if (auto other = parse_into(app, split.options, kUsage, " [-- CMD ARGS...]")) return *other;
  options.command = split.command;
  return options;
}

CommandLine parse_collect(const Words& words) {
  CollectOptions options;
  CLI::App app("The collector process; started by record and by the library.", "collect");
  app.add_option("--output", options.output)->required();
  app.add_option("--target", options.target)->required();
  app.add_option("--ready-fd", options.ready_fd);
  app.add_option("--control-fd", options.control_fd);
  app.add_flag("--force", options.force);
  app.add_option("--memory-group", options.memory_group);
  app.add_flag("--remove-group", options.remove_group);
  app.add_option("--options", options.options);
  const Split split = split_command(app, words);
  if (auto other = parse_into(app, split.options)) return *other;
  options.command = split.command;
  return options;
}

CommandLine parse_env(const Words& words) {
  EnvOptions options;
  CLI::App app("Prints the lines to export so that a job records itself.", "env");
  app.add_option("-o,--output", options.output, "directory of the recording (default whyrss-%h-%p)");
  app.add_option("--options", options.options, "for WHYRSS_OPTS, as touch=61,mode=exact");
  if (auto other = parse_into(app, words)) return *other;
  return options;
}

template <typename List>
bool is_in(const List& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

}  // namespace

CommandLine parse_command_line(const std::vector<std::string>& arguments) {
  if (arguments.empty()) return UsageError{"no command given (see whyrss --help)"};
  const std::string& first = arguments.front();
  if (first == "--help" || first == "-h") return ShowText{kHelp};
  if (first == "--version" || first == "-V") return ShowText{kVersion};
  const Words rest(arguments.begin() + 1, arguments.end());
  if (is_in(kLaterVerbs, first))
    return UsageError{first + ": not in this version (to record a program of that name: whyrss record -- " + first +
                      ")"};
  if (!is_in(kVerbs, first)) return parse_record(arguments);
  if (first == "record") return parse_record(rest);
  if (first == "report") return parse_report(rest);
  if (first == "compare-allocators") return parse_compare(rest);
  if (first == "prove") return parse_prove(rest);
  if (first == "doctor") return parse_doctor(rest);
  if (first == "collect") return parse_collect(rest);
  return parse_env(rest);
}

}  // namespace whyrss
