#include "ingest/process_input.h"

#include <fmt/format.h>

namespace whyrss {
namespace {

void note_damage(const FrameFile& file, const char* name, std::vector<std::string>& notes) {
  if (file.damaged_bytes > 0)
    notes.push_back(fmt::format("{}: {} bytes are damaged and were skipped", name, file.damaged_bytes));
  if (file.cut_short) notes.push_back(fmt::format("{}: the end is missing", name));
}

}  // namespace

void ProcessInput::open_events() {
  note_damage(events, "events.zst", notes);
  note_damage(pages, "pages.zst", notes);
  std::size_t damaged = 0;
  for (std::uint32_t i = 0; i < events.frames.size(); ++i) {
    const RawFrame& frame = events.frames[i];
    if (frame.kind == trace::FrameKind::segment && !stream.add_payload(frame.payload)) ++damaged;
    const std::size_t payload_bytes = frame.stored_at != 0 ? frame.raw_bytes : frame.payload.size();
    if (frame.kind == trace::FrameKind::blocks && !stream.add_blocks(i, frame.payload, payload_bytes)) ++damaged;
  }
  if (damaged > 0) notes.push_back(fmt::format("events.zst: {} frames hold damaged segments", damaged));
}

}  // namespace whyrss
