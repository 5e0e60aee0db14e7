// The native code that stacks are in: of an account, and that of which names are stored at the end of a recording.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "load/native_frames.h"
#include "model/stack_table.h"
#include "recording/recording_folder.h"

namespace whyrss::testing_support {

using Place = std::pair<std::string, std::uint64_t>;  // path of the program or library, address in it

inline std::set<Place> native_places(const StackTable& stacks) {
  std::set<Place> places;
  for (std::size_t i = 0; i < stacks.frame_count(); ++i)
    if (const Frame& frame = stacks[static_cast<FrameId>(i)]; frame.kind == FrameKind::native)
      places.emplace(stacks[frame.module].path, frame.address);
  return places;
}

// What names are stored of at the end of a recording.
inline std::set<Place> native_places(const std::string& recording_directory) {
  const auto folder = open_recording(recording_directory);
  if (!folder.ok()) return {};
  const auto manifest = read_manifest(*folder);
  const auto stacks = manifest.ok() ? load_native_frames(*folder, *manifest) : Result<StackTable>(StackTable());
  return stacks.ok() ? native_places(*stacks) : std::set<Place>();
}

}  // namespace whyrss::testing_support
