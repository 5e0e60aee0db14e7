// manifest.json of a recording: what was asked, by whom, when, and how far it got. Written by the
// collector (whole file, by rename), read by every report.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "recording/write_fault.h"
#include "shim/trace/trace_format.h"
#include "support/result.h"

namespace whyrss {

// A process whose files are closed, and how many frames they have; nothing: the file could not be made.
struct ClosedProcess {
  std::string directory;  // its name in the recording
  std::optional<std::uint64_t> events_frames = 0, pages_frames = 0;
  friend bool operator==(const ClosedProcess&, const ClosedProcess&) = default;
};

// Files in memory that were left behind.
struct LeftFiles {
  std::int64_t count = 0, bytes = 0;
  std::string largest;  // its name; "" for none
};

// The JSON keys are the member names, but for objects, which are named below.
struct Manifest {
  std::string version;  // of whyrss
  std::int64_t format = trace::kFormatVersion;
  std::string session;  // 32 hex digits
  std::string host, boot_id;
  std::vector<std::string> command;
  std::int64_t target_pid = 0;
  std::string started;          // RFC 3339 with microseconds, UTC
  std::int64_t started_ns = 0;  // CLOCK_MONOTONIC at the same moment: 0 s of all times
  std::int64_t ended_ns = 0;    // 0 while it runs
  std::map<std::string, std::string> options;
  std::string mode = "sampled";
  std::map<std::string, std::string> capabilities;  // name -> "yes", or what is missing
  std::string pool_path;
  std::int64_t page_bytes = 4096;
  std::int64_t memory_total_bytes = 0;  // of the machine, 0: not known
  std::string state;                    // "recording", "complete", "incomplete: <why>"

  // exit: {code, signal}: of the command, as far as known
  std::optional<int> exit_code;
  std::optional<std::string> exit_signal;  // "SIGKILL"

  // processes: [{directory, events, pages}]: all of the recording, once its collector has closed it
  std::optional<std::vector<ClosedProcess>> processes;

  // checksum: of everything before it. Set by parse_manifest: there is one, and it fits.
  bool is_sound = true;

  // lost: counted by the whole tree
  std::int64_t dropped_records = 0, dropped_bytes = 0, refused_slots = 0;

  // write_faults: what could not be written, one for each kind of error; the keys are the member names
  std::vector<WriteFault> write_faults;

  // What else went wrong, one line each; reports show it.
  std::vector<std::string> notes;
  // metrics: {url}: where live figures are served while it is recorded
  std::string metrics_url;

  // memory_group: {limit_bytes, oom_kills}: of the cgroup that record made for --memory-max; kills at the end
  std::optional<std::int64_t> group_limit_bytes, group_kills;

  // left_files: {count, bytes, largest}: when all processes had ended; nothing: not known
  std::optional<LeftFiles> left_files;

  // collector: {pid, cpu_s, share, overhead_percent}: its own cost, of one core; what its walks may cost, 0: not known
  std::int64_t collector_pid = 0;
  double collector_cpu_s = 0, collector_share = 0, overhead_percent = 0;
};

std::string render_manifest(const Manifest& manifest);

// Fails when it is no manifest of a readable version; unknown keys are skipped, missing ones keep
// their defaults.
Result<Manifest> parse_manifest(const std::string& text, const std::string& name);

// Whether it was written since this machine was booted; the second: by a host of this name too, as no other container
// is.
bool is_of_this_boot(const Manifest& manifest);
bool is_of_this_host(const Manifest& manifest);

}  // namespace whyrss
