#include "ingest/process_input.h"

#include <fmt/format.h>

namespace whyrss {
void ProcessInput::open_events() {
  std::size_t damaged = 0;
  for (std::uint32_t i = 0; i < events.frames.size(); ++i) {
    const RawFrame& frame = events.frames[i];
    if (frame.kind == trace::FrameKind::segment && !stream.add_payload(frame.payload)) ++damaged;
    const std::size_t payload_bytes = frame.stored_at != 0 ? frame.raw_bytes : frame.payload.size();
    if (frame.kind == trace::FrameKind::blocks && !stream.add_blocks(i, frame.payload, payload_bytes)) ++damaged;
  }
  if (damaged > 0) damage.push_back(fmt::format("{}/events.zst: {} frames hold damaged segments", directory, damaged));
}

}  // namespace whyrss
