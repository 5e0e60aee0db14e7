#include "decode/process_input.h"

#include <fmt/format.h>

namespace whyrss {

void ProcessInput::open_events(const std::function<void(std::uint64_t bytes)>& progress) {
  std::size_t damaged = 0;
  for (std::uint32_t i = 0; i < events.frames.size(); ++i) {
    RawFrame& frame = events.frames[i];
    if (frame.kind != trace::FrameKind::blocks) continue;
    const std::size_t payload_bytes = frame.stored_at != 0 ? frame.raw_bytes : frame.payload.size();
    if (!stream.add_blocks(i, frame.payload, payload_bytes)) ++damaged;
    if (frame.stored_at != 0) frame.payload = std::vector<std::byte>();  // the runs are in the stream now
  }
  stream.end_blocks();
  const Fd fd = events.reopen();
  PayloadBuffer buffer;
  for (std::uint32_t i = 0; i < events.frames.size(); ++i) {
    if (progress) progress(events.frames[i].stored_bytes);
    if (events.frames[i].kind != trace::FrameKind::segment) continue;
    const auto payload = buffer.load(events.frames[i], fd.get());
    if (!payload || !stream.add_payload(i, *payload)) ++damaged;
  }
  if (damaged > 0) damage.push_back(fmt::format("{}/events.zst: {} frames hold damaged segments", directory, damaged));
}

}  // namespace whyrss
