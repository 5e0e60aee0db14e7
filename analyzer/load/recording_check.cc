#include "load/recording_check.h"

#include <fmt/format.h>

#include <utility>

#include "recording/frame_order.h"
#include "support/text.h"

namespace whyrss {
namespace {

constexpr std::size_t kMostLines = 200;  // of a tree of 100,000 processes a reader needs no more

std::string in_directory(const std::string& directory, trace::FileKind kind) {
  return fmt::format("{}/{}: ", directory, name_of(kind));
}

std::optional<std::uint64_t> count_of(const ClosedProcess& process, trace::FileKind kind) {
  return kind == trace::FileKind::events ? process.events_frames : process.pages_frames;
}

bool is_closed(const Manifest& manifest) { return manifest.processes || manifest.state == "complete"; }

}  // namespace

const char* name_of(trace::FileKind kind) {
  switch (kind) {
    case trace::FileKind::events:
      return "events.zst";
    case trace::FileKind::pages:
      return "pages.zst";
    case trace::FileKind::names:
      break;
  }
  return "symbols.zst";
}

RecordingCheck::RecordingCheck(const Manifest& manifest) : manifest_(&manifest) {
  if (!manifest.processes) return;
  for (const ClosedProcess& process : *manifest.processes) processes_.emplace(process.directory, process);
}

bool RecordingCheck::is_own(const std::string& directory) const {
  return !manifest_->processes || processes_.contains(directory);
}

std::optional<std::uint64_t> RecordingCheck::frame_count(const std::string& directory, trace::FileKind kind) const {
  const auto process = processes_.find(directory);
  if (process == processes_.end()) return std::nullopt;
  return count_of(process->second, kind).value_or(0);
}

bool RecordingCheck::was_made(const std::string& directory, trace::FileKind kind) const {
  const auto process = processes_.find(directory);
  return process == processes_.end() || count_of(process->second, kind);
}

std::vector<std::string> RecordingCheck::check_file(FrameFile& file, const FileIdentity& expected,
                                                    const std::string& directory) const {
  const FileIdentity& is = file.identity;
  const bool is_ours = is.kind == expected.kind && is.pid == expected.pid && is.start_ticks == expected.start_ticks &&
                       hex32(is.session.high, is.session.low) == manifest_->session;
  if (!is_ours) {
    file = {};
    return {in_directory(directory, expected.kind) + "is of another recording or process, and was left out"};
  }
  const auto found = check_frames(file, frame_count(directory, expected.kind));
  if (found.empty()) return {};
  return {in_directory(directory, expected.kind) + join(found, "; ")};
}

std::vector<std::string> RecordingCheck::check_directories(const std::set<std::string>& found) const {
  std::vector<std::string> lines;
  if (!manifest_->is_sound) lines.emplace_back("manifest.json: it was changed after it was written");
  for (const auto& [name, process] : processes_)
    if (!found.contains(name))
      lines.push_back(name + (process.events_frames || process.pages_frames
                                  ? ": missing, with all that was recorded of this process"
                                  : ": its files could not be made, nothing was recorded of this process"));
  for (const std::string& name : found)
    if (!is_own(name)) lines.push_back(name + ": is none of the processes of this recording, and was left out");
  if (is_closed(*manifest_) && !manifest_->processes)
    lines.emplace_back("manifest.json: it does not say which processes were recorded");
  return lines;
}

void add_damage(const std::vector<std::string>& lines, RecordingInfo& info) {
  if (lines.empty()) return;
  if (info.complete) info.incomplete_why = "some of its files are damaged or missing";
  info.complete = false;
  const std::size_t shown = std::min(lines.size(), kMostLines);
  info.notes.insert(info.notes.end(), lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(shown));
  if (lines.size() > shown)
    info.notes.push_back(fmt::format("and {} more file{}", lines.size() - shown, lines.size() - shown == 1 ? "" : "s"));
}

}  // namespace whyrss
