#include "shim/process/python_end.h"

#include <array>

#include "shim/events/thread_state.h"
#include "shim/observe/python_memory.h"
#include "shim/process/final_walk.h"
#include "shim/process/trim_at_end.h"
#include "shim/stacks/python_frames.h"
#include "shim/stacks/python_interpreter.h"

namespace whyrss::shim {
namespace {

bool has_frames() noexcept {
  std::array<WalkedPythonFrame, 1> frame;
  return walk_python(frame, Access::direct).count > 0;
}

// Whether the main interpreter runs here and has no other thread: Py_FinalizeEx waits for all that are not daemons. At
// the end of a script of a subinterpreter the main one's thread has frames, which has_frames() does not see. The GIL is
// held.
bool is_only_main_thread() noexcept {
  if (g_python.first_thread == nullptr || g_python.next_thread == nullptr || g_python.main_interpreter == nullptr ||
      g_python.attached_state == nullptr)
    return false;
  const void* first = g_python.first_thread(g_python.main_interpreter());
  return first != nullptr && first == g_python.attached_state() && g_python.next_thread(first) == nullptr;
}

}  // namespace

bool is_end_of_script(const void* code) noexcept {
  const ThreadState& thread = thread_state();
  if (!g_python.usable.load(std::memory_order_relaxed) || g_python.is_finalizing() != 0) return false;
  if (observe_interpreter()) wrap_next_interpreter();
  return thread.writer.tid == thread.writer.pid && !has_frames() && is_only_main_thread() && !is_of_frozen_module(code);
}

void note_end_of_script() noexcept { observe_teardown(trace::Teardown::script); }

void note_finalization() noexcept {
  if (g_python.is_finalizing == nullptr || g_python.is_finalizing() == 0) return;
  observe_teardown(trace::Teardown::runtime);
  await_next_interpreter();
  walk_and_trim_at_end();
}

}  // namespace whyrss::shim
