#include "shim/events/session_state.h"

#include <sys/syscall.h>

#include "shim/events/vfork_child.h"
#include "shim/sys/loaded_images.h"
#include "shim/sys/raw_io.h"

namespace whyrss::shim {

constinit Session g_session;

bool is_vfork_child() noexcept {
  if (g_session.phase.load(std::memory_order_acquire) != Phase::live) return false;
  const Control& control = *g_session.control;
  if (trace::is_kernel_closed()) return may_be_vfork_child();
  return control.generation.load(std::memory_order_acquire) != 0 &&
         control.writer.pid != static_cast<std::uint32_t>(own_syscall(SYS_getpid));
}

const char* own_path() noexcept {
  const link_map* own = own_image();
  return own != nullptr ? own->l_name : "";
}

}  // namespace whyrss::shim
