#include "symbolize/symbolize.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "symbolize/elf_file.h"

namespace whyrss {
namespace {

constexpr std::size_t kModulesInNote = 5;

// Frames of one module by address: several may share one, with different names already.
using FramesByAddress = std::map<std::uint64_t, std::vector<FrameId>>;

std::map<Module, FramesByAddress> nameless_frames(const StackTable& stacks) {
  std::map<Module, FramesByAddress> modules;
  for (std::uint32_t i = 1; i < stacks.frame_count(); ++i) {
    const Frame& frame = stacks[FrameId{i}];
    if (frame.kind != FrameKind::native || frame.module == kNoModule || !frame.function.empty()) continue;
    const Module& module = stacks[frame.module];
    if (module.path.empty() || module.path.front() != '/') continue;  // [vdso] and the like are no files
    modules[module][frame.address].push_back(FrameId{i});
  }
  return modules;
}

bool exists(const std::string& path) { return !path.empty() && access(path.c_str(), F_OK) == 0; }

// Whether the file could tell more about what is `known` already.
bool is_outdated(const Module& module, const ModuleNames& known, const ReadLimits& limits) {
  if (known.cut_at_cpu_s > 0) return known.cut_at_cpu_s < limits.cpu_s;
  return !known.has_debug_info && exists(debug_file_path(module.build_id));  // installed since
}

std::vector<std::uint64_t> addresses_to_read(const Module& module, const ModuleNames* known,
                                             const FramesByAddress& frames, const ReadLimits& limits) {
  const bool all = known == nullptr || is_outdated(module, *known, limits);
  std::vector<std::uint64_t> addresses;
  for (const auto& [address, ids] : frames)
    if (all || !known->lines.contains(address)) addresses.push_back(address);
  return addresses;
}

// What was read whole is better than what is known; what was cut off is not.
void add_answer(ModuleNames answer, ModuleNames& known) {
  if (answer.cut_at_cpu_s == 0) answer.lines.swap(known.lines);
  known.lines.merge(answer.lines);
  known.has_debug_info = known.has_debug_info || answer.has_debug_info;
  known.cut_at_cpu_s = answer.cut_at_cpu_s;
  if (!answer.allocator.empty()) known.allocator = std::move(answer.allocator);
}

// Built again since: nothing else tells where there is no build id to compare.
bool is_newer(const Module& module, std::optional<std::time_t> recorded_until) {
  struct stat status {};
  return module.build_id.empty() && recorded_until && stat(module.path.c_str(), &status) == 0 &&
         status.st_mtime > *recorded_until;
}

std::string newer_note(const std::string& path) {
  return path + ": newer than the recording, and has no build id to compare; its functions have no names";
}

std::string missing_note(const std::string& path) { return path + ": not here; its functions have no names"; }

std::string gone_note(const std::vector<std::string>& gone) {
  std::string list;
  for (std::size_t i = 0; i < std::min(gone.size(), kModulesInNote); ++i) list += (i == 0 ? "" : ", ") + gone[i];
  if (gone.size() > kModulesInNote) list += fmt::format(" and {} more", gone.size() - kModulesInNote);
  return fmt::format("{}: not here; functions are named as stored with the recording", list);
}

}  // namespace

Symbolized symbolize(StackTable& stacks, NameTable& names, const ReadLimits& limits,
                     std::optional<std::time_t> recorded_until) {
  Symbolized result;
  const auto modules = nameless_frames(stacks);
  std::vector<ModuleToRead> to_read;
  std::vector<std::string> gone;
  for (const auto& [module, frames] : modules) {
    const auto known = names.find(module);
    if (!exists(module.path)) {
      if (known != names.end()) gone.push_back(module.path);
      if (known == names.end()) result.notes.push_back(missing_note(module.path));
      continue;
    }
    if (is_newer(module, recorded_until)) {
      if (known == names.end()) result.notes.push_back(newer_note(module.path));
      continue;
    }
    auto addresses = addresses_to_read(module, known == names.end() ? nullptr : &known->second, frames, limits);
    if (!addresses.empty()) to_read.push_back({module, std::move(addresses)});
  }
  std::vector<ModuleAnswer> answers = read_modules(to_read, limits);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    ModuleAnswer& answer = answers[i];
    if (!answer.note.empty()) result.notes.push_back(std::move(answer.note));
    if (answer.names.lines.empty()) continue;
    result.learned = true;
    add_answer(std::move(answer.names), names[to_read[i].module]);
  }
  if (!gone.empty()) result.notes.push_back(gone_note(gone));

  std::map<FrameId, std::vector<CodeLine>> lines;
  for (const auto& [module, frames] : modules) {
    const auto known = names.find(module);
    if (known == names.end()) continue;
    for (const auto& [address, ids] : frames)
      if (const auto found = known->second.lines.find(address); found != known->second.lines.end())
        for (const FrameId id : ids) lines[id] = found->second;
  }
  stacks.set_names(lines);
  return result;
}

}  // namespace whyrss
