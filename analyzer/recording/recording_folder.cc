#include "recording/recording_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <optional>
#include <string_view>

#include "shim/trace/recording_format.h"
#include "support/text.h"

namespace whyrss {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

// More than any of them ever holds. Those of a process are limited by their frames.
struct KnownFile {
  std::string_view name;
  std::uint64_t most_bytes;
};
constexpr std::array kKnownFiles{
    KnownFile{"manifest.json", 64 * kMiB},   KnownFile{"manifest.spare", 64 * kMiB}, KnownFile{"lock", kMiB},
    KnownFile{"collector.log", 1024 * kMiB}, KnownFile{"symbols.zst", 256 * kMiB},   KnownFile{"pool", 1024 * kMiB}};

// The host may hold dots.
std::optional<ProcessFolder> parse_process_name(const std::string& name) {
  const auto parts = split(name, '.');
  if (parts.size() < 3) return std::nullopt;
  const auto ticks = parse_number<std::uint64_t>(parts[parts.size() - 1]);
  const auto number = parse_number<std::uint32_t>(parts[parts.size() - 2]);
  if (!ticks || !number || *number == 0 || *number > INT_MAX) return std::nullopt;
  return ProcessFolder{.name = name, .pid = *number, .start_ticks = *ticks};
}

Status check_file(const Folder& folder, const KnownFile& known) {
  const EntryStatus status = folder.status_of(std::string(known.name));
  if (status.kind == EntryKind::missing) return Done{};
  const std::string path = folder.path_of(std::string(known.name));
  if (status.kind != EntryKind::file)
    return Error{fmt::format("{} is no regular file: the recording is not read", path)};
  if (status.size_bytes > known.most_bytes)
    return Error{fmt::format("{} has {} MiB, more than any recording: the recording is not read", path,
                             status.size_bytes / kMiB)};
  return Done{};
}

Result<Manifest> read_manifest_once(const Folder& recording) {
  constexpr const char* kName = "manifest.json";
  if (recording.status_of(kName).kind == EntryKind::missing) {
    if (access(recording.path().c_str(), X_OK) != 0 && errno == EACCES)
      return Error{fmt::format("cannot read {}: it belongs to another user", recording.path())};
    return Error{fmt::format("{} is no whyrss recording: it has no manifest.json", recording.path())};
  }
  const auto file = recording.open_file(kName);
  if (!file) return Error{file.error()};
  const auto text = read_at_most(*file, kKnownFiles.front().most_bytes, recording.path_of(kName));
  if (!text) return Error{text.error()};
  return parse_manifest(*text, recording.path_of(kName));
}

}  // namespace

Result<Folder> open_recording(const std::string& path) {
  auto folder = Folder::open(path);
  if (!folder && errno == ENOTDIR) return Error{fmt::format("{} is no whyrss recording: it is not a directory", path)};
  if (!folder) return system_error("cannot open the recording", path);
  for (const KnownFile& known : kKnownFiles)
    if (const Status good = check_file(*folder, known); !good) return Error{good.error()};
  return folder;
}

// The collector may have written over the text while it was read, where its disk is full.
Result<Manifest> read_manifest(const Folder& recording) {
  auto manifest = read_manifest_once(recording);
  if (manifest && manifest->is_sound) return manifest;
  return read_manifest_once(recording);
}

Result<std::vector<ProcessFolder>> list_processes(const Folder& recording) {
  const auto names = recording.list();
  if (!names) return Error{names.error()};
  std::vector<ProcessFolder> processes;
  for (const std::string& name : *names) {
    auto process = parse_process_name(name);
    if (!process) continue;
    if (recording.status_of(name).kind != EntryKind::directory)
      return Error{fmt::format("{} is no directory: the recording is not read", recording.path_of(name))};
    processes.push_back(std::move(*process));
  }
  return processes;
}

}  // namespace whyrss
