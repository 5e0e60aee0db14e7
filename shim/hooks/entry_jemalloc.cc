// jemalloc's sized interface. Where the next library does not have it (a program that only asks whether
// these names exist) it is built from the standard one, as the program has it, which may define malloc itself; flags as
// in jemalloc(3): the low six bits are the logarithm of the alignment, 0x40 asks for zeroed memory.
#include <malloc.h>

#include <algorithm>
#include <cstring>

#include "shim/events/caller.h"
#include "shim/hooks/entry_allocate.h"
#include "shim/observe/observe_heap.h"
#include "shim/sys/real.h"

namespace whyrss::shim {
namespace {

constexpr int kZeroed = 0x40;

constexpr std::size_t alignment_of(int flags) { return std::size_t{1} << (flags & 63); }

void* allocate_by_standard(std::size_t size, int flags) noexcept {
  const std::size_t alignment = std::max<std::size_t>(alignment_of(flags), 16);
  void* block = alignment <= 16 ? ::malloc(size) : ::memalign(alignment, size);
  if (block != nullptr && (flags & kZeroed) != 0) std::memset(block, 0, size);
  return block;
}

void* resize_by_standard(void* block, std::size_t size, int flags) noexcept {
  const std::size_t old_size = ::malloc_usable_size(block);
  void* moved = allocate_by_standard(size, flags);
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, block, std::min(size, old_size));
  ::free(block);
  return moved;
}

}  // namespace
}  // namespace whyrss::shim

using namespace whyrss::shim;  // NOLINT(google-build-using-namespace): entries are global C functions

WHYRSS_ENTRY void* mallocx(std::size_t size, int flags) noexcept {
  resolve_real();
  return allocate_counted(
      size, [=] { return real.mallocx != nullptr ? real.mallocx(size, flags) : allocate_by_standard(size, flags); });
}

WHYRSS_ENTRY void* rallocx(void* block, std::size_t size, int flags) noexcept {
  resolve_real();
  if (real.rallocx == nullptr) {  // what it calls is observed there
    const HeapCall call(thread_state(), caller_here());
    return resize_by_standard(block, size, flags);
  }
  const Released released = observe_release(block);
  void* moved = release_once(block, [=] { return real.rallocx(block, size, flags); });
  if (moved != nullptr)
    observe_allocate(caller_here(), moved, size);
  else
    observe_release_undone(block, released);
  return moved;
}

WHYRSS_ENTRY void dallocx(void* block, int flags) noexcept {
  begin_release(block);
  resolve_real();
  release_once(block, [=] { real.dallocx != nullptr ? real.dallocx(block, flags) : ::free(block); });
}

WHYRSS_ENTRY void sdallocx(void* block, std::size_t size, int flags) noexcept {
  begin_release(block);
  resolve_real();
  release_once(block, [=] { real.sdallocx != nullptr ? real.sdallocx(block, size, flags) : ::free(block); });
}
