#include "load/process_files.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "load/recording_check.h"
#include "recording/recording_folder.h"

namespace whyrss {
namespace {

// One of the two files of a process; what cannot be read is said in its `damage`. Fails for what no recording has in
// its place.
Status read_frames(const Folder& recording, trace::FileKind kind, const RecordingCheck& check, ProcessInput& input) {
  FrameFile& file = kind == trace::FileKind::events ? input.events : input.pages;
  const std::string name = fmt::format("{}/{}", input.directory, name_of(kind));
  const EntryStatus entry = recording.status_of(name);
  if (entry.kind == EntryKind::missing) {
    input.damage.push_back(name + (check.was_made(input.directory, kind) ? ": missing" : ": could not be made"));
    return Done{};
  }
  if (entry.kind != EntryKind::file)
    return Error{fmt::format("{} is no regular file: the recording is not read", recording.path_of(name))};
  auto parsed = read_frame_file(recording, name);
  // What a crash leaves has some of its frames.
  if (!parsed && entry.size_bytes > trace::kMaxFrameBytes) return Error{parsed.error()};
  if (!parsed) {
    input.damage.push_back(parsed.error());
    return Done{};
  }
  file = std::move(*parsed);
  const FileIdentity expected{.kind = kind, .session = {}, .pid = input.pid, .start_ticks = input.start_ticks};
  for (std::string& line : check.check_file(file, expected, input.directory)) input.damage.push_back(std::move(line));
  return Done{};
}

}  // namespace

Result<Processes> read_processes(const Folder& recording, const Manifest& manifest,
                                 std::initializer_list<trace::FileKind> kinds) {
  const auto found = list_processes(recording);
  if (!found) return Error{found.error()};
  std::set<std::string> names;
  for (const ProcessFolder& process : *found) names.insert(process.name);
  const RecordingCheck check(manifest);
  Processes processes;
  processes.damage = check.check_directories(names);
  for (const ProcessFolder& process : *found) {
    if (!check.is_own(process.name)) continue;
    auto input = std::make_unique<ProcessInput>();
    input->directory = process.name;
    input->pid = process.pid;
    input->start_ticks = process.start_ticks;
    for (const trace::FileKind kind : kinds)
      if (Status read = read_frames(recording, kind, check, *input); !read) return Error{read.error()};
    processes.inputs.push_back(std::move(input));
  }
  return processes;
}

}  // namespace whyrss
