// Where the Python frames of a stack belong among its native ones.
#pragma once

#include <cstddef>
#include <vector>

#include "shim/trace/trace_format.h"

namespace whyrss {

using PythonFrames = std::vector<trace::PythonFrame>;

// All innermost first; Python frames keep their order whatever is known of them.
struct PlacedFrames {
  PythonFrames before;                // inside of all native frames
  std::vector<PythonFrames> instead;  // of each native frame
  PythonFrames after;                 // outside of all native frames
};

// A frame that does not say where it runs goes to a call of the eval loop, one C call per `entry` flag. Where the
// native frames reach to the thread's start they are counted from there, else (`is_cut`) from the innermost.
PlacedFrames place_python_frames(const std::vector<bool>& is_eval, const PythonFrames& python, bool is_cut);

}  // namespace whyrss
