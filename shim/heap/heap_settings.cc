#include "shim/heap/heap_settings.h"

#include <atomic>

#include "shim/events/session_state.h"
#include "shim/stacks/unwind_rules.h"
#include "shim/sys/loaded_images.h"
#include "shim/sys/real.h"

namespace whyrss::shim {

constinit HeapSettings g_heap;

namespace {

constexpr std::uint32_t kLearnFrom = 8;

// What tells the image of `address` from others, nullptr: none holds it.
const void* image_of(const void* address) noexcept {
  const LoadedImage image = find_image(reinterpret_cast<std::uint64_t>(address));
  return image.start != 0 ? image.path : image_name_at(address).path;
}

}  // namespace

bool is_of_one_library(const void* left, const void* right) noexcept {
  const void* image = image_of(left);
  return image != nullptr && image == image_of(right);
}

bool allocator_reports_sizes() noexcept {
  // An allocator without malloc_usable_size must not be asked through another one's.
  return real.malloc_usable_size != nullptr &&
         is_of_one_library(reinterpret_cast<const void*>(real.malloc),
                           reinterpret_cast<const void*>(real.malloc_usable_size));
}

void learn_sizes(const void* block) noexcept {
  static constinit std::atomic<std::uint32_t> learned{0};
  static constinit std::atomic<bool> unequal{false};
  const std::size_t usable = real.malloc_usable_size(const_cast<void*>(block));
  g_heap.usable_size = real.malloc_usable_size;
  if (session().allocator != trace::Allocator::glibc) {
    g_heap.learning = false;
    return;
  }
  const std::size_t word = static_cast<const std::size_t*>(block)[-1];
  // Blocks that are mapped apart have another header; the function is always asked for them.
  if ((word & kGlibcMapped) == 0 && glibc_usable_bytes(word) != usable) unequal.store(true, std::memory_order_relaxed);
  if (learned.fetch_add(1, std::memory_order_relaxed) + 1 < kLearnFrom) return;
  g_heap.glibc_header = !unequal.load(std::memory_order_relaxed);
  g_heap.learning = false;
}

}  // namespace whyrss::shim
