#include "cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <string_view>
#include <tuple>
#include <utility>

#include "cli/examples.h"
#include "cli/exit_status.h"
#include "cli/near_miss.h"
#include "cli/size_option.h"
#include "cli/verbs.h"
#include "job/expected.h"
#include "metrics/metrics_address.h"
#include "report/wording/format.h"

namespace whyrss {
namespace {

constexpr std::size_t kShownColumns = 60;  // of a value that is wrong
constexpr const char* kVersion = "whyrss " WHYRSS_VERSION "\n";
constexpr const char* kHelp =
    R"(whyrss tells why the resident memory (RSS) of a program grew, by cause and line of code.

  whyrss CMD ARGS...              record CMD and say why its memory grew
  whyrss record [options] -- CMD  the same with options
  whyrss report DIR               the whole report of a recording
  whyrss top PID|DIR|-- CMD       memory by cause and line while programs run
  whyrss html DIR                 the same as a page with charts, in one file
  whyrss diff DIR DIR             what changed between two recordings, phases, processes or jobs
  whyrss export DIR --format F    the same figures for pprof, flame graphs, SQL, Prometheus and others
  whyrss reduce DIR... -o PART    what recordings of one node say, in a small file
  whyrss merge PART... -o JOB     parts of all nodes and ranks in one, for report, html and diff
  whyrss compare-allocators CMD   what CMD needs under glibc, jemalloc, tcmalloc and mimalloc
  whyrss prove PID|DIR            show that file cache is no leak: have the kernel take it back
  whyrss doctor [-- CMD]          what works on this machine and for CMD
  whyrss env [-o DIR]             lines to export for jobs whose command line cannot change

`whyrss help VERB` lists a verb's options, and examples. `whyrss version` says which this is.
)";

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

// For words that no option and no place takes.
std::string unexpected(const CLI::App& app) {
  const Words words = app.remaining();
  const auto option = std::ranges::find_if(words, [](const std::string& word) { return word.starts_with('-'); });
  if (option == words.end()) return "a word too many: " + words.back();
  const std::string name = option->substr(0, option->find('='));
  Words known;
  for (const CLI::Option* one : app.get_options())
    known.insert(known.end(), one->get_lnames().begin(), one->get_lnames().end());
  const std::vector<std::string_view> candidates(known.begin(), known.end());
  const std::string near = nearest_word(name.substr(std::min<std::size_t>(name.size(), 2)), candidates);
  return fmt::format("there is no option {}{}", name, near.empty() ? "" : "; did you mean --" + near + "?");
}

// "--mode: 1 required TEXT:{a,b} missing"
std::string without_value(const std::string& message) {
  const std::size_t end = message.find(": ");
  return message.ends_with(" missing") && end != std::string::npos ? message.substr(0, end) + " needs a value"
                                                                   : message;
}

// CLI11 wants the words backwards. Nothing: parsed; else what to print, or what is wrong. `command`: what the usage
// line says of the words behind the options.
std::optional<CommandLine> parse_into(CLI::App& app, Words words, int usage_status = kUsage,
                                      std::string_view command = {}) {
  const auto refuse = [&](std::string message) {
    std::replace(message.begin(), message.end(), '\n', ' ');
    return UsageError{fmt::format("{0}: {1} (see whyrss {0} --help)", app.get_name(), message), usage_status};
  };
  app.footer(examples_of(app.get_name()));
  std::reverse(words.begin(), words.end());
  try {
    app.parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    return ShowText{help_of(app, command)};
  } catch (const CLI::ExtrasError&) {
    return refuse(unexpected(app));
  } catch (const CLI::ArgumentMismatch& error) {
    return refuse(without_value(error.what()));
  } catch (const CLI::Error& error) {
    return refuse(error.what());
  }
  return std::nullopt;
}

// What is wrong with the value of an option; "" for nothing.
std::string check_not_empty(const std::string& text) { return text.empty() ? "must not be empty" : ""; }

bool is_count(const std::string& text) {
  constexpr std::size_t kMostDigits = 9;
  return text.size() <= kMostDigits && text.find_first_not_of("0123456789") == std::string::npos &&
         text.find_first_not_of('0') != std::string::npos;
}

std::string check_count(const std::string& text) {
  return is_count(text) ? "" : fmt::format("{} is no number from 1 on", shortened(text, kShownColumns));
}

// `what`: "number", or "number of seconds".
std::string check_between(const std::string& text, double least, double most, std::string_view what) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  const bool good = error == std::errc{} && stop == end && value >= least && value <= most;  // nan is neither
  return good ? "" : fmt::format("{} is no {} from {} to {}", shortened(text, kShownColumns), what, least, most);
}

std::string check_overhead(const std::string& text) { return check_between(text, 0.1, 100, "number"); }
std::string check_interval(const std::string& text) { return check_between(text, 0.1, 3600, "number of seconds"); }

void add_output(CLI::App& app, std::string& path) {
  app.add_option("-o,--output", path, "write to this file instead of stdout")->check(check_not_empty);
}

void add_overhead(CLI::App& app, double& percent) {
  app.add_option(
         "--overhead", percent,
         "what snapshots of the memory may take beyond their first 0.2 s, in percent of a core or of the job's own "
         "CPU time: all of it in the first minute and while memory moves, else a third (from 0.1 to 100, default 3)")
      ->check(check_overhead);
}

// `-p PID`, as of perf and strace.
bool wants_to_attach(const Words& words) {
  return !words.empty() && (words.front() == "-p" || words.front() == "--pid" || words.front().starts_with("--pid="));
}

CommandLine parse_record(const Words& words, bool verb_typed) {
  if (wants_to_attach(words))
    return UsageError{"record: " + cannot_attach(words.size() > 1 ? words[1] : "PID"), kCannotRecord};
  RecordOptions options;
  options.verb_typed = verb_typed;
  std::string sample_bytes = "64KiB", liveness = "on", write_tracking = "on", python_objects = "on";
  CLI::App app("Runs CMD, and says why its memory grew.", "record");
  app.add_option("-o,--output", options.output,
                 "directory of the recording (default whyrss-<program>-<pid>; %p pid, %h host, %j job, %r rank)")
      ->check(check_not_empty);
  app.add_flag("-f,--force", options.force, "replace an existing recording");
  app.add_option("--mode", options.mode, "sampled (default), or exact: each malloc and free with its stack")
      ->check(CLI::IsMember({"sampled", "exact"}));
  app.add_option("--sample-bytes", sample_bytes, "mean distance of malloc samples (default 64KiB)");
  app.add_option("--touch", options.touch, "sample each Nth page fault: a number, auto or off");
  app.add_option("--seed", options.seed, "sample the same blocks and page faults again: a number, for tests")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{999'999'999'999'999'999}));
  app.add_option("--liveness", liveness, "live bytes per page: on or off")->check(CLI::IsMember({"on", "off"}));
  app.add_option("--write-tracking", write_tracking, "writes of fork families to shared pages: on or off")
      ->check(CLI::IsMember({"on", "off"}));
  app.add_option("--python-objects", python_objects,
                 "sample the objects of CPython's own allocator, each with its line: on (default) or off")
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
  app.add_option("--exe", options.exe, "which programs of the tree to trace fully (a pattern with *)")
      ->check(check_not_empty);
  app.add_option("--metrics", options.metrics,
                 "serve live figures to Prometheus at this address while it is recorded: :9464 (127.0.0.1), "
                 "0.0.0.0:9464, unix:PATH; port 0: any that is free (also WHYRSS_METRICS)");
  app.add_option("--metrics-file", options.metrics_file,
                 "write them to this file once a second, for the exporter's textfile collector; tokens as in -o (also "
                 "WHYRSS_METRICS_FILE)");
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
  if (options.touch != "auto" && options.touch != "off" && !is_count(options.touch))
    return UsageError{"record: --touch " + options.touch + ": expected a number above 0, auto or off", kCannotRecord};
  if (limit->count() > 0)
    if (const auto size = parse_size(options.memory_max); !size || *size == 0)
      return UsageError{"record: --memory-max: " + (size ? "must be more than 0" : size.error()), kCannotRecord};
  if (!options.metrics.empty())
    if (const auto address = parse_metrics_address(options.metrics); !address)
      return UsageError{"record: --metrics " + address.error(), kCannotRecord};
  if (split.command.empty())
    return UsageError{"record: no command given (whyrss record [options] -- CMD ARGS...)", kCannotRecord};
  options.command = split.command;
  return options;
}

// A command comes after the first `--`; what comes before is for `record`, but for the screen's own options.
CommandLine parse_top(const Words& words) {
  TopOptions options;
  std::size_t count = 0;
  CLI::App app("Shows memory by cause, and the lines, while programs run.", "top");
  app.add_option("-i,--interval", options.interval_s,
                 "seconds between two screens (default 2; more where reading a long recording takes longer)")
      ->check(check_interval);
  auto* count_option = app.add_option("-n,--count", count, "end after so many screens")->check(check_count);
  const auto dashes = std::ranges::find(words, "--");
  const bool has_command = dashes != words.end();
  if (!has_command)
    app.add_option("targets", options.targets,
                   "process ids: these and their descendants; or a recording that is being made; none: the largest "
                   "processes. With -- CMD options of record too; what CMD prints goes to DIR.log, and it reads "
                   "nothing from the terminal");
  else
    app.allow_extras();
  if (auto other = parse_into(app, Words(words.begin(), dashes), kUsage, has_command ? " -- CMD ARGS..." : "")) {
    if (auto* error = std::get_if<UsageError>(&*other); error != nullptr && !has_command)
      error->message += "; options of record go with -- CMD";
    return *other;
  }
  if (has_command && dashes + 1 == words.end())
    return UsageError{"top: no command given behind -- (see whyrss top --help)", kCannotRecord};
  if (count_option->count() > 0) options.count = count;
  if (!has_command) return options;
  Words rest = app.remaining();
  rest.insert(rest.end(), dashes, words.end());
  CommandLine record = parse_record(rest, true);
  if (const auto* parsed = std::get_if<RecordOptions>(&record)) {
    options.record = *parsed;
    return options;
  }
  return record;
}

CommandLine parse_report(const Words& words) {
  ReportOptions options;
  int pid = 0;
  std::size_t top = 0;
  CLI::App app("Says why memory grew in a recording.", "report");
  app.add_option("recording", options.recording, "directory of the recording, or a part of a job (whyrss merge)")
      ->required();
  app.add_option("--format", options.format, "text, json, markdown, or github: annotations of a GitHub Actions job")
      ->check(CLI::IsMember({"text", "json", "markdown", "github"}));
  add_output(app, options.output);
  app.add_option("--from", options.from, "begin of the interval: seconds, a phase, a mark, or teardown")
      ->check(check_not_empty);
  app.add_option("--to", options.to, "end of the interval: seconds, a phase, a mark, or teardown (the default)")
      ->check(check_not_empty);
  auto* pid_option = app.add_option("--pid", pid, "this process alone");
  auto* top_option =
      app.add_option("--top", top, "lines and processes shown (text: 10), sites kept per cause (json: 1000)")
          ->check(check_count);
  app.add_option("--by", options.by, "lines that allocated (alloc) or touched (touch) the memory")
      ->check(CLI::IsMember({"alloc", "touch"}));
  app.add_option("--schema", options.schema,
                 "of json: 2 (default), where each stack stands once, or 1, for older readers: 10 to 30 times the size")
      ->check(CLI::IsMember({1, 2}));
  app.add_flag("--small-sites", options.keeps_small_sites,
               "with all the callers of sites below 64 KiB, or within twice their error, too (json, schema 2)");
  app.add_flag("--pages", options.pages,
               "with what each page of the address spaces is, at chosen snapshots (json, schema 2)");
  app.add_flag("--stacks", options.stacks, "who called the lines with the most growth (text and markdown)");
  app.add_flag("--in-notebook", options.in_notebook, "advice is for a cell of a notebook, not for a command line");
  app.add_option("--fail-if", options.fail_if,
                 "exit 3 when this grew more, summed over processes: a cause or rss, pss, uss, as 'fork_cow>2GiB'");
  if (auto other = parse_into(app, words)) return *other;
  if (pid_option->count() > 0) options.pid = pid;
  if (top_option->count() > 0) options.top = top;
  if (options.pages && options.format != "json") return UsageError{"report: --pages is for --format json"};
  if (options.pages && options.schema == 1)
    return UsageError{"report: --pages: its stacks stand in the table that only --schema 2 has"};
  if (options.keeps_small_sites && options.format != "json")
    return UsageError{"report: --small-sites is for --format json"};
  return options;
}

CommandLine parse_html(const Words& words) {
  HtmlOptions options;
  CLI::App app("Writes the report of a recording, or of a job, as one HTML file, which needs no network.", "html");
  app.add_option("recording", options.recording, "directory of the recording, or a part of a job (whyrss merge)")
      ->required();
  app.add_option("-o,--output", options.output,
                 "write to this file, or - for stdout (default: the recording's name with .html, here)")
      ->check(check_not_empty);
  if (auto other = parse_into(app, words)) return *other;
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
  add_output(app, options.output);
  app.add_option("--keep", options.keep, "keep the recordings in this directory");
  app.add_option("--input", options.input, "what each run reads from its stdin (default /dev/null)");
  add_overhead(app, options.overhead_percent);
  app.add_flag("--show-output", options.show_output, "let the output of CMD through; else that of failed runs alone");
  const Split split = split_command(app, words);
  if (auto other = parse_into(app, split.options, kUsage, " -- CMD ARGS...")) return *other;
  for (const std::string& list : lists) {
    const auto choices = parse_allocators(list);
    if (!choices) return UsageError{"compare-allocators: -a " + list + ": " + choices.error()};
    options.allocators.insert(options.allocators.end(), choices->begin(), choices->end());
  }
  options.command = split.command;
  if (options.command.empty())
    return UsageError{"compare-allocators: no command given (whyrss compare-allocators [options] -- CMD ARGS...)"};
  return options;
}

CommandLine parse_prove(const Words& words) {
  ProveOptions options;
  CLI::App app(
      "Shows that the file pages of a process are reclaimable, by reclaiming them. Of a recording whose processes have "
      "ended it asks, and then runs the recorded command once more under a memory limit.",
      "prove");
  app.add_option("target", options.target, "a process, or the directory of a recording")->required();
  app.add_flag("--tree", options.tree, "of a process: its descendants too");
  const CLI::Option* limit = app.add_option(
      "--memory-max", options.memory_max,
      "of a recording that has ended: the limit under which its command runs again (default: chosen from it)");
  app.add_option("--input", options.input, "what that run reads from its stdin (default /dev/null)");
  app.add_flag("--show-output", options.show_output, "let the output of that run through");
  app.add_flag("-y,--yes", options.yes, "run that command without asking first, as a script needs it");
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
  app.add_option("--metrics", options.metrics);
  app.add_option("--metrics-file", options.metrics_file);
  const Split split = split_command(app, words);
  if (auto other = parse_into(app, split.options)) return *other;
  options.command = split.command;
  return options;
}

CommandLine parse_env(const Words& words) {
  EnvOptions options;
  CLI::App app("Prints the lines to export so that a job records itself.", "env");
  app.add_option("-o,--output", options.output,
                 "directory of the recording (default whyrss-%h-%p); with %j commands of one job or shell share it")
      ->check(check_not_empty);
  app.add_option("--for", options.launcher,
                 "bash (the default): lines to export; slurm, docker: options of srun, of docker run")
      ->check(CLI::IsMember({"bash", "slurm", "docker"}));
  app.add_option("--options", options.options, "for WHYRSS_OPTS, as touch=61,mode=exact");
  if (auto other = parse_into(app, words)) return *other;
  return options;
}

SiteFigure site_figure(const std::string& name) {
  if (name == "growth") return SiteFigure::growth;
  return name == "at_peak" ? SiteFigure::at_peak : SiteFigure::resident;
}

CommandLine parse_export(const Words& words) {
  ExportOptions options;
  int pid = 0;
  std::string value = "resident", formats = "one of";
  CLI::App app("Writes a recording in a format that other tools read.", "export");
  app.add_option("recording", options.recording, "directory of the recording")->required();
  std::vector<std::string> names;
  for (const ExportFormat& format : export_formats()) {
    names.emplace_back(format.name);
    formats += fmt::format("\n  {:<12} for {}", format.name, format.read_by);
  }
  app.add_option("--format", options.format, formats)->required()->check(CLI::IsMember(names));
  add_output(app, options.output);
  app.add_option("--from", options.part.from, "begin of the interval: seconds, a phase, a mark, or teardown")
      ->check(check_not_empty);
  app.add_option("--to", options.part.to, "end of the interval: seconds, a phase, a mark, or teardown (the default)")
      ->check(check_not_empty);
  auto* pid_option = app.add_option("--pid", pid, "this process alone");
  auto* value_option = app.add_option("--value", value,
                                      "of formats that hold one figure: what is resident at the interval's end "
                                      "(resident, the default), growth, or at_peak")
                           ->check(CLI::IsMember({"resident", "growth", "at_peak"}));
  if (auto other = parse_into(app, words)) return *other;
  if (pid_option->count() > 0) options.part.pid = pid;
  if (value_option->count() > 0 && !find_export_format(options.format)->holds_one_value)
    return UsageError{"export: --value " + value + ": " + options.format + " holds all figures"};
  options.value = site_figure(value);
  return options;
}

CommandLine parse_diff(const Words& words) {
  DiffOptions options;
  int pid_a = 0, pid_b = 0;
  std::pair<std::string, std::string> phases;
  std::pair<int, int> pids;
  std::size_t top = 0;
  std::string value;
  CLI::App app("Says what changed between two recordings, two phases, two processes, or two jobs.", "diff");
  app.add_option("A", options.a.recording,
                 "directory of the recording, or part of a job (whyrss merge), that B is compared with")
      ->required();
  app.add_option("B", options.b.recording, "directory of the other one (A itself, with other options for A and B)");
  auto* phases_option =
      app.add_option("--phases", phases, "two phases of A; of several of one name train#2 is the second")
          ->type_name("PHASE PHASE");
  auto* pids_option = app.add_option("--pids", pids, "two processes of A")->type_name("PID PID");
  app.add_option("--phase-a", options.a.phase, "this phase of A alone");
  app.add_option("--phase-b", options.b.phase, "this phase of B alone");
  auto* pid_a_option = app.add_option("--pid-a", pid_a, "this process of A alone");
  auto* pid_b_option = app.add_option("--pid-b", pid_b, "this process of B alone");
  app.add_option("--value", value,
                 "growth (the default), resident at the end, or at_peak of each process (the default of jobs)")
      ->check(CLI::IsMember({"growth", "resident", "at_peak"}));
  app.add_option("--format", options.format, "text, json, markdown or html (one page; not of jobs)")
      ->check(CLI::IsMember({"text", "json", "markdown", "html"}));
  add_output(app, options.output);
  auto* top_option = app.add_option("--top", top, "lines shown (10; json, html: 1000)")->check(check_count);
  app.add_option("--fail-if", options.fail_if,
                 "exit 3 when this is more in B by so much: a cause or rss, pss, uss, as 'heap_live > +10%' or "
                 "'rss>64MiB'");
  if (auto other = parse_into(app, words)) return *other;
  if (pid_a_option->count() > 0) options.a.pid = pid_a;
  if (pid_b_option->count() > 0) options.b.pid = pid_b;
  if ((phases_option->count() > 0 && !(options.a.phase.empty() && options.b.phase.empty())) ||
      (pids_option->count() > 0 && (options.a.pid || options.b.pid)))
    return UsageError{"diff: --phases and --pids name both parts: leave out the options for A and for B"};
  if (phases_option->count() + pids_option->count() > 0) options.a.suffix = options.b.suffix = "s";
  if (phases_option->count() > 0) std::tie(options.a.phase, options.b.phase) = phases;
  if (pids_option->count() > 0) std::tie(options.a.pid, options.b.pid) = pids;
  if (top_option->count() > 0) options.top = top;
  if (options.b.recording.empty()) {
    if (options.a.phase == options.b.phase && options.a.pid == options.b.pid)
      return UsageError{"diff: nothing to compare " + options.a.recording +
                        " with: name another recording, or two parts of it by --phases or --pids"};
    options.b.recording = options.a.recording;
  }
  if (!value.empty()) options.value = site_figure(value);
  return options;
}

// Nothing, or what is wrong with it.
std::optional<UsageError> check_nodes(const std::string& verb, const std::string& nodes) {
  if (nodes.empty()) return std::nullopt;
  const Status known = check_node_list(nodes);
  return known ? std::nullopt : std::optional(UsageError{verb + ": --nodes: " + known.error()});
}

constexpr const char* kNodesHelp =
    "nodes that the job should have, as node[001-576],login1 or their number (default: as SLURM_JOB_NODELIST was "
    "when it was recorded)";

CommandLine parse_reduce(const Words& words) {
  ReduceOptions options;
  CLI::App app("Writes what recordings say to a part of bounded size, for whyrss merge.", "reduce");
  app.add_option("recordings", options.recordings, "directories of recordings of one node")->required();
  app.add_option("-o,--output", options.output, "the part to write")->required()->check(check_not_empty);
  app.add_option("--nodes", options.nodes, kNodesHelp);
  if (auto other = parse_into(app, words)) return *other;
  if (auto wrong = check_nodes("reduce", options.nodes)) return *wrong;
  return options;
}

CommandLine parse_merge(const Words& words) {
  MergeOptions options;
  CLI::App app(
      "Joins parts of a job to one part, which report, html and diff read; in any order, and in any number of steps.",
      "merge");
  app.add_option("parts", options.inputs, "parts, or recordings, which are reduced")->required();
  app.add_option("-o,--output", options.output, "the part to write")->required()->check(check_not_empty);
  app.add_option("--nodes", options.nodes, kNodesHelp);
  app.add_flag("--several-jobs", options.several_jobs, "join parts of different jobs too");
  app.add_flag("--skip-damaged", options.skip_damaged, "leave out parts that cannot be read, and name them");
  if (auto other = parse_into(app, words)) return *other;
  if (auto wrong = check_nodes("merge", options.nodes)) return *wrong;
  return options;
}

template <typename List>
bool is_in(const List& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

CommandLine parse_help(const std::string& verb) {
  if (verb == "help" || verb == "version" || verb.starts_with('-')) return ShowText{kHelp};
  if (is_in(kVerbs, verb)) return parse_command_line({verb, "--help"});
  const std::string near = nearest_word(verb, kVerbs);
  return UsageError{fmt::format("help: {} is no verb{} (see whyrss --help)", shortened(verb, kShownColumns),
                                near.empty() ? "" : "; did you mean " + near + "?")};
}

}  // namespace

CommandLine parse_command_line(const std::vector<std::string>& arguments) {
  if (arguments.empty()) return UsageError{"no command given (see whyrss --help)"};
  const std::string& first = arguments.front();
  const Words rest(arguments.begin() + 1, arguments.end());
  if (first == "--version" || first == "-V" || first == "version") return ShowText{kVersion};
  if (first == "--help" || first == "-h" || (first == "help" && rest.empty())) return ShowText{kHelp};
  if (first == "help") return parse_help(rest.front());
  if (!is_in(kVerbs, first)) return parse_record(arguments, false);
  if (first == "record") return parse_record(rest, true);
  if (first == "report") return parse_report(rest);
  if (first == "top") return parse_top(rest);
  if (first == "html") return parse_html(rest);
  if (first == "compare-allocators") return parse_compare(rest);
  if (first == "prove") return parse_prove(rest);
  if (first == "doctor") return parse_doctor(rest);
  if (first == "collect") return parse_collect(rest);
  if (first == "export") return parse_export(rest);
  if (first == "diff") return parse_diff(rest);
  if (first == "reduce") return parse_reduce(rest);
  if (first == "merge") return parse_merge(rest);
  return parse_env(rest);
}

}  // namespace whyrss
