#include "load/native_frames.h"

#include <algorithm>
#include <vector>

#include "load/process_files.h"
#include "replay/program_images.h"

namespace whyrss {
namespace {

void intern_stacks(const ProcessInput& input, ProgramImages& program, StackStore& store) {
  const auto resolve = [&](const StackRun& stack) {
    const auto after = std::ranges::upper_bound(program.attached_ns, stack.first_ns) - program.attached_ns.begin();
    if (after > 0) program.images[static_cast<std::size_t>(after) - 1]->resolve_once(stack.first_id);
  };
  for (const StackRun& run : input.stream.stack_runs()) {
    std::vector<StackRun> stacks;  // resolving may load other frames, which the store takes this one away for
    store.visit(input.events, run, [&](const StackRun& stack) { stacks.push_back(stack); });
    std::ranges::for_each(stacks, resolve);
  }
  for (const auto& image : program.images) image->release();
}

}  // namespace

Result<StackTable> load_native_frames(const Folder& folder, const Manifest& manifest) {
  auto processes = read_processes(folder, manifest, {trace::FileKind::events});
  if (!processes) return Error{processes.error()};
  StackTable table;
  StackStore store;
  NamedTables named;
  std::vector<ProgramImages> programs;
  for (const auto& input : processes->inputs) {
    input->open_events();
    programs.push_back(define_images(*input, input->stream.records(), table, store, named));
    input->stream.release_bytes();
  }
  for (const ProgramImages& program : programs)
    for (std::size_t i = 0; i < program.images.size(); ++i)
      if (program.images[i]->attach().born == trace::Born::fork)
        inherit_named_tables(*program.images[i], program.attached_ns[i], named);
  for (std::size_t i = 0; i < programs.size(); ++i) intern_stacks(*processes->inputs[i], programs[i], store);
  return table;
}

}  // namespace whyrss
