#include "symbolize/symbolize.h"

#include <map>
#include <set>

#include "symbolize/module_reader.h"

namespace whyrss {
namespace {

// Frames of one module by address: several may share one, with different names already.
using FramesByAddress = std::map<std::uint64_t, std::vector<FrameId>>;

std::map<ModuleId, FramesByAddress> nameless_frames(const StackTable& stacks, const std::vector<StackId>& wanted) {
  std::map<ModuleId, FramesByAddress> modules;
  std::set<FrameId> seen;
  for (const StackId stack : wanted) {
    for (const FrameId id : stacks[stack]) {
      const Frame& frame = stacks[id];
      if (frame.kind != FrameKind::native || frame.module == kNoModule || !frame.function.empty()) continue;
      if (seen.insert(id).second) modules[frame.module][frame.address].push_back(id);
    }
  }
  return modules;
}

}  // namespace

std::vector<std::string> symbolize(StackTable& stacks, const std::vector<StackId>& wanted) {
  std::vector<std::string> notes;
  for (const auto& [module_id, frames] : nameless_frames(stacks, wanted)) {
    const Module module = stacks[module_id];
    if (module.path.empty() || module.path.front() != '/') continue;  // [vdso] and the like are no files
    std::vector<std::uint64_t> addresses;
    for (const auto& [address, ids] : frames) addresses.push_back(address);
    const ModuleNames answer = read_module_names(module, addresses);
    for (const AddressName& name : answer.names) {
      const auto found = frames.find(name.address);
      if (found == frames.end()) continue;
      for (const FrameId id : found->second) stacks.set_names(id, name.function, name.file, name.line);
    }
    if (!answer.note.empty()) notes.push_back(answer.note);
  }
  return notes;
}

}  // namespace whyrss
