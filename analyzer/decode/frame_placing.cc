#include "decode/frame_placing.h"

#include <algorithm>
#include <iterator>

namespace whyrss {
namespace {

// Frames of calls that do not say where they run, between two that do.
struct Run {
  std::vector<PythonFrames> calls;
  std::size_t begin = 0, end = 0;  // native frames that they may have run in
};

void append(PythonFrames& to, const PythonFrames& frames) { to.insert(to.end(), frames.begin(), frames.end()); }

// From the innermost call on. What is left has run outside of all that is known.
void place_inwards(const Run& run, const std::vector<std::size_t>& evals, PlacedFrames& placed) {
  for (std::size_t i = 0; i < run.calls.size(); ++i)
    append(i < evals.size() ? placed.instead[evals[i]] : placed.after, run.calls[i]);
}

// From the outermost call on. What is left has run right inside of these calls.
void place_outwards(const Run& run, const std::vector<std::size_t>& evals, PlacedFrames& placed) {
  const std::size_t left = run.calls.size() - std::min(run.calls.size(), evals.size());
  PythonFrames& inside = run.begin > 0 ? placed.instead[run.begin - 1] : placed.before;
  for (std::size_t i = 0; i < left; ++i) append(inside, run.calls[i]);
  for (std::size_t i = left; i < run.calls.size(); ++i)
    append(placed.instead[evals[evals.size() - (run.calls.size() - i)]], run.calls[i]);
}

void place(const Run& run, const std::vector<bool>& is_eval, bool is_cut, PlacedFrames& placed) {
  if (run.calls.empty()) return;
  std::vector<std::size_t> evals;
  for (std::size_t i = run.begin; i < run.end; ++i)
    if (is_eval[i]) evals.push_back(i);
  if (is_cut && run.end == is_eval.size())
    place_inwards(run, evals, placed);
  else
    place_outwards(run, evals, placed);
}

}  // namespace

PlacedFrames place_python_frames(const std::vector<bool>& is_eval, const PythonFrames& python, bool is_cut) {
  PlacedFrames placed{.before = {}, .instead = std::vector<PythonFrames>(is_eval.size()), .after = {}};
  Run run;
  bool call_ended = true;
  for (const trace::PythonFrame& frame : python) {
    // What lies inside of the frame before it cannot be right.
    if (frame.native_index < is_eval.size() && frame.native_index + std::size_t{1} >= run.begin) {
      run.end = frame.native_index;
      place(run, is_eval, is_cut, placed);
      run = {.calls = {}, .begin = frame.native_index + std::size_t{1}};
      placed.instead[frame.native_index].push_back(frame);
      call_ended = true;
      continue;
    }
    if (call_ended) run.calls.emplace_back();
    run.calls.back().push_back(frame);
    call_ended = (frame.flags & trace::PythonFrameFlags::entry) != 0;
  }
  run.end = is_eval.size();
  place(run, is_eval, is_cut, placed);
  return placed;
}

}  // namespace whyrss
