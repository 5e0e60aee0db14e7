#include "shim/sys/single_threaded.h"

#include "shim/sys/loaded_images.h"

namespace whyrss::shim {
namespace {

constexpr char kUnknown = 0;

}  // namespace

constinit const char* g_single_threaded = &kUnknown;

// A program may hold the variable itself (a copy relocation): glibc 2.32 and 2.33 keep that one up to date, and not
// libc's.
void find_single_threaded() noexcept {
  const Symbol found = find_in_program("__libc_single_threaded");
  if (found.address != nullptr) g_single_threaded = reinterpret_cast<const char*>(found.address);
}

}  // namespace whyrss::shim
