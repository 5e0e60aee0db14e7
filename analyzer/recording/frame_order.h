// Whether the frames of a file are all there, each once and in order, by the numbers that they bear.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "recording/frame_file.h"

namespace whyrss {

// Sorts the frames by number, leaves out those that stand twice, and notes both in the file.
void put_in_order(FrameFile& file);

// What is wrong with a file, each in a few words; nothing when it is whole. `frame_count`: as its writer counted them,
// nothing where that is not known. Frames beyond it are taken out. A file without numbers is taken as it is.
std::vector<std::string> check_frames(FrameFile& file, std::optional<std::uint64_t> frame_count);

}  // namespace whyrss
