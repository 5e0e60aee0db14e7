#include "shim/process/python_follow.h"

#include "shim/observe/python_memory.h"
#include "shim/observe/python_stats_call.h"
#include "shim/process/python_end.h"
#include "shim/stacks/python_interpreter.h"

namespace whyrss::shim {

void follow_python() noexcept {
  g_python_followers = {.wrap_memory = wrap_python_memory,
                        .replace_stats_call = replace_stats_call,
                        .is_end_of_script = is_end_of_script,
                        .note_end_of_script = note_end_of_script,
                        .note_finalization = note_finalization};
}

}  // namespace whyrss::shim
