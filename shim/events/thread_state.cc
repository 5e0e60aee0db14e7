#include "shim/events/thread_state.h"

namespace whyrss::shim {

constinit thread_local ThreadState t_thread_state;

}  // namespace whyrss::shim
