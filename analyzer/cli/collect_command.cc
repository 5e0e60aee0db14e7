#include "cli/collect_command.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "collect/loop/collector.h"
#include "collect/loop/detach.h"
#include "collect/start/capabilities.h"
#include "collect/start/shared_session.h"
#include "support/clock.h"
#include "support/text.h"
#include "support/version.h"

namespace whyrss {
namespace {

trace::SessionId new_session() {
  std::array<std::uint64_t, 2> words{};
  if (getrandom(words.data(), sizeof words, 0) != sizeof words)
    words = {static_cast<std::uint64_t>(clock_ns(CLOCK_REALTIME)), static_cast<std::uint64_t>(getpid())};
  return {.high = words[0], .low = words[1]};
}

std::string first_line(const std::string& path) {
  const auto text = read_file(path);
  if (!text) return {};
  std::string_view rest = *text;
  return std::string(take_until(rest, '\n'));
}

// "mode=exact,touch=61" -> {mode: exact, touch: 61}
std::map<std::string, std::string> parse_options(std::string_view text) {
  std::map<std::string, std::string> options;
  while (!text.empty()) {
    std::string_view pair = take_until(text, ',');
    const std::string key(take_until(pair, '='));
    if (!key.empty()) options[key] = std::string(pair);
  }
  return options;
}

Manifest describe_recording(const CollectOptions& options, trace::SessionId session, const std::string& option_text) {
  Manifest manifest;
  std::array<char, HOST_NAME_MAX + 1> host{};
  gethostname(host.data(), host.size() - 1);
  manifest.version = kVersion;
  manifest.session = hex32(session.high, session.low);
  manifest.host = host.data();
  manifest.boot_id = first_line("/proc/sys/kernel/random/boot_id");
  manifest.command = options.command;
  if (manifest.command.empty())
    if (const auto cmdline = read_file(fmt::format("/proc/{}/cmdline", options.target)))
      manifest.command = split(*cmdline, '\0');
  manifest.target_pid = options.target;
  const std::int64_t realtime_ns = clock_ns(CLOCK_REALTIME);
  manifest.started_ns = monotonic_ns();
  manifest.started = rfc3339(realtime_ns);
  manifest.options = parse_options(option_text);
  if (const auto mode = manifest.options.find("mode"); mode != manifest.options.end()) manifest.mode = mode->second;
  for (const Capability& capability : probe_capabilities())
    manifest.capabilities[capability.name] = capability.works ? "yes" : capability.detail;
  manifest.capabilities["unmapped_shmem"] = "yes";  // older recordings do not know of it
  manifest.page_bytes = sysconf(_SC_PAGESIZE);
  manifest.memory_total_bytes = sysconf(_SC_PHYS_PAGES) * manifest.page_bytes;
  manifest.state = "recording";
  manifest.collector_pid = getpid();
  return manifest;
}

// Where writes can be tracked across fork, and the user has not switched it off.
void open_handover(Collector::Setup& setup) {
  std::string& capability = setup.manifest.capabilities["write_tracking"];
  const auto wanted = setup.manifest.options.find("write_tracking");
  if (wanted != setup.manifest.options.end() && wanted->second == "off") capability = "switched off";
  if (capability != "yes") return;
  auto socket = HandoverSocket::open(setup.pool.path(), setup.directory.path);
  if (!socket) {
    capability = socket.error();
    return;
  }
  setup.handover = std::move(*socket);
  setup.handover.announce(setup.pool.view());
}

// In percent; the default where the option is missing or no valid number.
double overhead_of(const Manifest& manifest) {
  const auto option = manifest.options.find("overhead");
  const std::string text = option == manifest.options.end() ? std::string() : option->second;
  double percent = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), percent, std::chars_format::fixed);
  const bool good = error == std::errc{} && end == text.data() + text.size() && percent > 0 && percent <= 100;
  return good ? percent : WalkBudget::kShare * 100;
}

// The job has ended and no process waits for the collector: but one that goes on for long would surprise.
void end_soon() {
  constexpr rlim_t kCpuSecondsLeft = 2;
  const rlimit core{0, 0};
  rlimit cpu{};
  getrlimit(RLIMIT_CPU, &cpu);
  cpu.rlim_cur = static_cast<rlim_t>(clock_ns(CLOCK_PROCESS_CPUTIME_ID) / 1'000'000'000) + 1 + kCpuSecondsLeft;
  setrlimit(RLIMIT_CORE, &core);
  setrlimit(RLIMIT_CPU, &cpu);
}

// The first of them that says something: the command line, WHYRSS_OPTS, a variable of its own, which may hold commas.
std::string first_of(const std::string& given, const std::map<std::string, std::string>& options, const char* key,
                     const char* variable) {
  if (!given.empty()) return given;
  if (const auto option = options.find(key); option != options.end()) return option->second;
  const char* value = std::getenv(variable);
  return value == nullptr ? std::string() : std::string(value);
}

// While this is still a process of the job: paths are relative to its directory, and its umask says who may read.
MetricsTargets metrics_targets(const CollectOptions& options, const std::string& option_text) {
  constexpr mode_t kReadable = 0644;
  const auto parsed = parse_options(option_text);
  MetricsTargets targets;
  targets.address = first_of(options.metrics, parsed, "metrics", "WHYRSS_METRICS");
  constexpr std::string_view kUnix = "unix:";
  if (targets.address.starts_with(kUnix))
    targets.address = fmt::format("{}{}", kUnix, absolute_path(targets.address.substr(kUnix.size())));
  targets.file = first_of(options.metrics_file, parsed, "metrics_file", "WHYRSS_METRICS_FILE");
  if (!targets.file.empty()) targets.file = absolute_path(expand_tokens(targets.file, options.target));
  const mode_t mask = umask(0);
  umask(mask);
  targets.file_mode = kReadable & ~mask;
  return targets;
}

// Where they are, and what cannot be had, for record to say; a job without a command line gets it with its session.
void announce_metrics(const CollectOptions& options, const LiveMetrics& metrics) {
  std::string lines;
  if (!metrics.url().empty()) lines += fmt::format("metrics {}\n", metrics.url());
  for (const std::string& fault : metrics.faults()) lines += fmt::format("warning {}\n", fault);
  if (options.control_fd >= 0) {
    send(options.control_fd, lines.data(), lines.size(), MSG_NOSIGNAL);
    return;
  }
  constexpr std::size_t kMostBytes = 2000;  // the library has room for so much beside the session
  const std::string faults = join(metrics.faults(), "; ");
  if (!faults.empty()) write_fully(options.ready_fd, fmt::format("?{}\n", faults.substr(0, kMostBytes)));
}

int refuse(int ready_fd, const std::string& reason) {
  write_fully(ready_fd, "!" + reason + "\n");
  return 1;
}

// Nothing was recorded: the place is free for another try.
int refuse(int ready_fd, const std::string& reason, const std::string& directory) {
  std::error_code error;
  std::filesystem::remove_all(directory, error);
  return refuse(ready_fd, reason);
}

int give_session(int ready_fd, const std::string& value) {
  // As the environment entry that the target gets.
  const bool given = write_fully(ready_fd, fmt::format("WHYRSS_SESSION={}\n", value));
  close(ready_fd);
  return given ? 0 : 1;
}

// Joins the recording of the target's job, if one is being made.
bool join_target(const CollectOptions& options, const std::string& path, const std::string& own = {}) {
  const auto joined = join_session(path, own);
  if (!joined || give_session(options.ready_fd, joined->value) != 0) return false;
  wait_until_attached(*joined, options.target);
  return true;
}

}  // namespace

int run_collect(const CollectOptions& options) {
  const char* environment = std::getenv("WHYRSS_OPTS");
  const std::string option_text = !options.options.empty() ? options.options
                                  : environment != nullptr ? std::string(environment)
                                                           : std::string();
  const std::string path = absolute_path(expand_tokens(options.output, options.target));
  const bool from_record = options.control_fd >= 0;
  const MetricsTargets metrics = metrics_targets(options, option_text);
  detach_from_job({options.ready_fd, options.control_fd});

  const WhenTaken when_taken = options.force ? WhenTaken::replace
                               : from_record ? WhenTaken::refuse
                                             : WhenTaken::choose_next;
  const bool is_shared = !from_record && is_shared_output(options.output);
  if (is_shared && join_target(options, path)) return 0;
  auto directory = make_recording_directory(path, when_taken);
  if (!directory) return refuse(options.ready_fd, directory.error());
  // Another command of the job may have been quicker.
  if (is_shared && directory->path != path && join_target(options, path, directory->path)) {
    std::error_code error;
    std::filesystem::remove_all(directory->path, error);
    return 0;
  }
  Collector::Setup setup;
  setup.session = new_session();
  // A group of the target's own must not be charged with pages that its processes would reserve.
  const auto space = options.memory_group.empty() ? PoolFile::Space::by_need : PoolFile::Space::all;
  auto pool = PoolFile::create(setup.session, directory->path, space);
  if (!pool) return refuse(options.ready_fd, pool.error(), directory->path);
  setup.directory = std::move(*directory);
  setup.pool = std::move(*pool);
  setup.pool.become_reader();
  setup.manifest = describe_recording(options, setup.session, option_text);
  setup.manifest.pool_path = setup.pool.path();
  setup.manifest.overhead_percent = overhead_of(setup.manifest);
  setup.overhead = setup.manifest.overhead_percent / 100;
  setup.target = options.target;
  setup.control_fd = options.control_fd;
  setup.memory_group = options.memory_group;
  setup.removes_group = options.remove_group;
  if (is_shared) setup.gate = SessionGate::open(setup.directory.path, options.target);
  open_handover(setup);
  setup.metrics = LiveMetrics::open(metrics);
  setup.manifest.metrics_url = setup.metrics.url();
  setup.manifest.notes = setup.metrics.faults();
  setup.manifest_file.emplace(setup.directory.path);
  const Status written = setup.manifest_file->write(render_manifest(setup.manifest));
  if (!written) return refuse(options.ready_fd, written.error(), setup.directory.path);

  announce_metrics(options, setup.metrics);
  give_session(options.ready_fd, fmt::format("{}:{}", setup.manifest.session, setup.manifest.pool_path));
  const std::string recording = setup.directory.path;
  bool alone = false;
  {
    Collector collector(std::move(setup));
    collector.run();
    alone = collector.is_alone();
  }  // the lock and the shared memory are given back
  if (!alone || options.store_names == nullptr) return 0;
  end_soon();
  options.store_names(recording);
  return 0;
}

}  // namespace whyrss
