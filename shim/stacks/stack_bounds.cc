#include "shim/stacks/stack_bounds.h"

#include <algorithm>

#include "shim/sys/loaded_images.h"
#include "shim/sys/readable_page.h"

namespace whyrss::shim {
namespace {

// The kernel leaves at least this much below the main stack free of mappings (mmap_base: 128 MiB); it
// is also more than threads' stacks have. Deeper stacks are read page by page.
constexpr std::uint64_t kStackSpan = std::uint64_t{64} << 20;

constinit std::uint64_t g_main_stack_end = 0;
constinit std::uint64_t g_main_thread_block = 0;

// Whether sp is on this thread's own stack: every page up to the control block at its top is readable. Such a stack
// stays mapped as long as its thread runs, so that one walk of each page is enough. A hole in between is remembered for
// good: it lies below the thread's stack.
bool is_own_stack(std::uint64_t sp, std::uint64_t thread_block, KnownStack& known) noexcept {
  if (known.low != 0 && sp >= known.low) return true;
  if (sp < known.hole) return false;
  const std::uint64_t end = known.low != 0 ? known.low : thread_block;
  for (std::uint64_t page = page_of(sp); page < end; page += kPageBytes) {
    if (is_page_readable(page)) continue;
    known.hole = std::max(known.hole, page);
    return false;
  }
  known.low = page_of(sp);
  return true;
}

}  // namespace

void StackBounds::enter(std::uint64_t sp) noexcept {
  sp_ = sp;
  lasting_ = true;
  if (sp < g_main_stack_end && g_main_stack_end - sp < kStackSpan) {
    end_ = limit_ = g_main_stack_end & ~std::uint64_t{7};
    return;
  }
  const auto thread_block = reinterpret_cast<std::uint64_t>(__builtin_thread_pointer());
  if (thread_block != g_main_thread_block && sp < thread_block && thread_block - sp < kStackSpan &&
      is_own_stack(sp, thread_block, known_)) {
    end_ = limit_ = thread_block;
    return;
  }
  // An alternate signal stack, a coroutine.
  lasting_ = false;
  end_ = page_of(sp);
  limit_ = sp <= UINT64_MAX - kStackSpan ? sp + kStackSpan : sp;
}

bool StackBounds::extend(std::uint64_t address) noexcept {
  for (; end_ <= address; end_ += kPageBytes) {
    if (is_page_readable(end_)) continue;
    limit_ = end_;
    return false;
  }
  return true;
}

std::uint64_t own_stack_end(std::uint64_t sp) noexcept {
  if (sp < g_main_stack_end && g_main_stack_end - sp < kStackSpan) return g_main_stack_end;
  const auto thread_block = reinterpret_cast<std::uint64_t>(__builtin_thread_pointer());
  const bool below_block = thread_block != g_main_thread_block && sp < thread_block && thread_block - sp < kStackSpan;
  KnownStack known{};
  return below_block && is_own_stack(sp, thread_block, known) ? thread_block : 0;
}

void start_stack_bounds() noexcept {
  g_main_thread_block = reinterpret_cast<std::uint64_t>(__builtin_thread_pointer());
  const std::uint64_t* end = nullptr;
  if (set_found(end, find_in_libc("__libc_stack_end"))) g_main_stack_end = *end;
}

}  // namespace whyrss::shim
