#include "cli/collect_command.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "collect/capabilities.h"
#include "collect/collector.h"
#include "collect/detach.h"
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
  manifest.page_bytes = sysconf(_SC_PAGESIZE);
  manifest.memory_total_bytes = sysconf(_SC_PHYS_PAGES) * manifest.page_bytes;
  manifest.state = "recording";
  manifest.collector_pid = getpid();
  return manifest;
}

// Where writes can be tracked across fork, and nobody has switched it off.
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

// In percent; the usual where nobody has said it, or not so that it can be understood.
double overhead_of(const Manifest& manifest) {
  const auto option = manifest.options.find("overhead");
  const std::string text = option == manifest.options.end() ? std::string() : option->second;
  double percent = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), percent, std::chars_format::fixed);
  const bool good = error == std::errc{} && end == text.data() + text.size() && percent > 0 && percent <= 100;
  return good ? percent : WalkBudget::kShare * 100;
}

// The job has ended and nobody waits: but a collector that goes on for long would surprise.
void end_soon() {
  constexpr rlim_t kCpuSecondsLeft = 2;
  const rlimit core{0, 0};
  rlimit cpu{};
  getrlimit(RLIMIT_CPU, &cpu);
  cpu.rlim_cur = static_cast<rlim_t>(clock_ns(CLOCK_PROCESS_CPUTIME_ID) / 1'000'000'000) + 1 + kCpuSecondsLeft;
  setrlimit(RLIMIT_CORE, &core);
  setrlimit(RLIMIT_CPU, &cpu);
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

}  // namespace

int run_collect(const CollectOptions& options) {
  const char* environment = std::getenv("WHYRSS_OPTS");
  const std::string option_text = !options.options.empty() ? options.options
                                  : environment != nullptr ? std::string(environment)
                                                           : std::string();
  const std::string path = absolute_path(expand_tokens(options.output, options.target));
  const bool from_record = options.control_fd >= 0;
  detach_from_job({options.ready_fd, options.control_fd});

  const WhenTaken when_taken = options.force ? WhenTaken::replace
                               : from_record ? WhenTaken::refuse
                                             : WhenTaken::choose_next;
  auto directory = make_recording_directory(path, when_taken);
  if (!directory) return refuse(options.ready_fd, directory.error());
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
  open_handover(setup);
  setup.manifest_file.emplace(setup.directory.path);
  const Status written = setup.manifest_file->write(render_manifest(setup.manifest));
  if (!written) return refuse(options.ready_fd, written.error(), setup.directory.path);

  // As the environment entry that the target gets.
  const std::string session = fmt::format("WHYRSS_SESSION={}:{}\n", setup.manifest.session, setup.manifest.pool_path);
  write_fully(options.ready_fd, session);
  close(options.ready_fd);
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
