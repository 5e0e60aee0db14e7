#include "replay/program_images.h"

#include <algorithm>

namespace whyrss {
namespace {

using trace::RecordKind;

// A stack belongs to the image that was there when it was described. Those of a frame that an exec falls into are
// looked up one by one.
void share_out_stacks(const ProcessInput& input, StackStore& store, ProgramImages& program) {
  const auto images_at = [&](std::uint64_t time_ns) {
    return static_cast<std::size_t>(std::ranges::upper_bound(program.attached_ns, time_ns) -
                                    program.attached_ns.begin());
  };
  const auto define = [&](const StackRun& run) {
    if (const std::size_t images = images_at(run.first_ns); images > 0) program.images[images - 1]->define_stacks(run);
  };
  for (const StackRun& run : input.stream.stack_runs()) {
    if (images_at(run.first_ns) == images_at(run.last_ns))
      define(run);
    else
      store.visit(input.events, run, define);
  }
  for (const auto& image : program.images) image->end_definitions();
}

}  // namespace

ProgramImages define_images(const ProcessInput& input, const std::vector<EventRecord>& records, StackTable& table,
                            StackStore& store, NamedTables& named) {
  ProgramImages program;
  ImageTables* image = nullptr;
  for (const EventRecord& record : records) {
    if (record.kind == RecordKind::attach) {
      image = program.images.emplace_back(std::make_unique<ImageTables>(table, store, input)).get();
      program.attached_ns.push_back(record.time_ns);
    }
    if (image == nullptr) continue;
    if (!image->define(record)) ++program.damaged_records;
    if (record.kind == RecordKind::tables && image->tables())
      named.try_emplace({image->tables()->pid, image->tables()->since_ns}, image);
  }
  share_out_stacks(input, store, program);
  return program;
}

bool inherit_named_tables(ImageTables& image, std::uint64_t fork_ns, const NamedTables& named) {
  const auto& tables = image.tables();
  if (!tables) return false;
  const auto found = named.find({tables->inherited_pid, tables->inherited_since_ns});
  if (found != named.end()) image.inherit(*found->second, fork_ns);
  return true;
}

}  // namespace whyrss
