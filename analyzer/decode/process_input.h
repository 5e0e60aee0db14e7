// The bytes of one process of a recording, as they were found: files and what the pool still held.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "decode/event_stream.h"
#include "recording/frame_file.h"

namespace whyrss {

struct ProcessInput {
  std::uint32_t pid = 0;
  std::uint64_t start_ticks = 0;
  std::string directory;  // its name in the recording; "": nothing of it was stored
  FrameFile events, pages;
  std::vector<std::string> damage;  // what could not be read, with the file's name
  EventStream stream;
  std::int64_t dropped_records = 0;  // as the pool that was left behind says

  // Feeds the segments of `events` into `stream`. `progress` gets the size of each frame in its file.
  void open_events(const std::function<void(std::uint64_t bytes)>& progress = {});
};

}  // namespace whyrss
