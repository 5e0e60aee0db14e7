// How this image follows its heap: what the entries of the malloc family read at every call. Written once, while the
// session starts; the directory last. Zero means that blocks are not counted page by page, and sizes not known.
#pragma once

#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shim/trace/trace_format.h"

namespace whyrss::shim {

using UsableSize = std::size_t (*)(void*);

struct HeapSettings {
  std::atomic<std::atomic<std::uint64_t>*> directory{nullptr};  // of the liveness table (liveness.h); nullptr: off
  bool glibc_header = false;                                    // the word before a block says its size
  bool exact = false;                                           // every block is logged
  bool sample_objects = false;                                  // CPython's too, in sampled mode
  bool learning = false;                                        // sizes will be known: see learn_sizes
  UsableSize usable_size = nullptr;                             // of the library that serves malloc
  std::uint64_t sample_bytes = 0;                               // mean distance; 0: nothing is sampled
};

extern constinit HeapSettings g_heap;
inline HeapSettings& heap() noexcept { return g_heap; }

// glibc keeps the size of a block in the word before it, with three flags, and eight bytes of it are its own. The
// program's free reads the same word.
inline constexpr std::size_t kGlibcFlags = 7, kGlibcMapped = 2, kGlibcOwnBytes = 8;
constexpr std::size_t glibc_usable_bytes(std::size_t word) noexcept { return (word & ~kGlibcFlags) - kGlibcOwnBytes; }

// Bytes that the program may use of a block that malloc returned, where the word before it says so.
[[gnu::always_inline]] inline bool header_reports(const void* block, std::size_t& usable) noexcept {
  if (!heap().glibc_header) [[unlikely]]
    return false;
  const std::size_t word = static_cast<const std::size_t*>(block)[-1];
  usable = glibc_usable_bytes(word);
  return (word & kGlibcMapped) == 0;
}

// The same of every block; `requested` where its usable size is not known.
[[gnu::always_inline]] inline std::size_t usable_bytes(const void* block, std::size_t requested = 0) noexcept {
  const HeapSettings& settings = heap();
  std::size_t usable = 0;
  if (header_reports(block, usable)) [[likely]]
    return usable;
  return settings.usable_size != nullptr ? settings.usable_size(const_cast<void*>(block)) : requested;
}

// Whether a block is counted in the liveness table where it is not followed (live_blocks.h): all small ones, and larger
// ones up to a size.
[[gnu::always_inline]] inline bool is_counted_unfollowed(std::size_t usable) noexcept {
  return usable < trace::kLargeBlockBytes || (usable < trace::kAlwaysLoggedBytes && !heap().exact &&
                                              heap().directory.load(std::memory_order_relaxed) != nullptr);
}

// Whether two functions are of one image. Takes no lock where glibc can.
bool is_of_one_library(const void* left, const void* right) noexcept;

// Whether malloc's library has a malloc_usable_size.
bool allocator_reports_sizes() noexcept;

// With a block that malloc has just returned, while `learning`: from now on sizes are known. Never while the allocator
// runs below us: its function may take locks and allocate (tcmalloc's does at its first call). With glibc's eighth
// block it is known whether its headers say what the function says. Then `learning` ends.
void learn_sizes(const void* block) noexcept;

}  // namespace whyrss::shim
