#include "shim/heap/pymalloc_pages.h"

#include <atomic>
#include <cstring>

#include "shim/heap/heap_settings.h"
#include "shim/heap/liveness.h"

namespace whyrss::shim {
namespace {

constexpr std::uint32_t kMark = trace::kPymallocPage << 16;

// A pool (obmalloc.c) begins with a header of 48 bytes, its size class at 36; then its blocks, all of one size.
constexpr std::uintptr_t kPoolHeaderBytes = 48, kSizeClass = 36;
constexpr std::size_t kClassBytes = 16, kClasses = 32;

constinit std::uint32_t g_pool_bytes = 0;

// No block of malloc lies there that another thread could count.
void set_pages(LivenessDirectory common, const void* arena, std::size_t size_bytes, std::uint32_t value) noexcept {
  const auto start = reinterpret_cast<std::uintptr_t>(arena);
  visit_directories([=](LivenessDirectory directory) {
    for (std::size_t at = 0; at < size_bytes; at += trace::kLivenessPageBytes)
      if (std::uint32_t* counter = live_counter(directory, start + at); counter != nullptr)
        __atomic_store_n(counter, directory == common ? value : 0, __ATOMIC_RELAXED);
  });
}

LivenessDirectory directory_now() noexcept { return heap().directory.load(std::memory_order_acquire); }

}  // namespace

void set_pymalloc_pool_bytes(std::uint32_t pool_bytes) noexcept {
  g_pool_bytes = pool_bytes;
  if (auto* table = reinterpret_cast<trace::LivenessTable*>(liveness_address()); table != nullptr)
    __atomic_store_n(&table->pymalloc_pool_bytes, pool_bytes, __ATOMIC_RELAXED);
}

void mark_pymalloc_arena(ThreadState& thread, const void* arena, std::size_t size_bytes) noexcept {
  const LivenessDirectory directory = directory_now();
  if (directory == nullptr) return;
  map_leaves(thread, arena, size_bytes);
  set_pages(directory, arena, size_bytes, kMark);
}

void clear_pymalloc_arena(const void* arena, std::size_t size_bytes) noexcept {
  if (const LivenessDirectory directory = directory_now(); directory != nullptr)
    set_pages(directory, arena, size_bytes, 0);
}

PymallocBlock pymalloc_block_at(const void* address) noexcept {
  const LivenessDirectory directory = directory_now();
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  if (directory == nullptr || g_pool_bytes == 0) return {};
  const std::uintptr_t pool = at & ~std::uintptr_t{g_pool_bytes - 1};
  // An arena that does not begin on a pool's boundary has no pool there: both ends must be marked.
  for (const std::uintptr_t place : {pool, at}) {
    const std::uint32_t* counter = live_counter(directory, place);
    if (counter == nullptr || __atomic_load_n(counter, __ATOMIC_RELAXED) != kMark) return {};
  }
  std::uint32_t size_class = 0;
  std::memcpy(&size_class, reinterpret_cast<const std::byte*>(pool) + kSizeClass, sizeof(size_class));
  if (size_class >= kClasses || at < pool + kPoolHeaderBytes) return {};
  const std::size_t size_bytes = (size_class + 1) * kClassBytes;
  const std::uintptr_t offset = at - pool - kPoolHeaderBytes;
  return {.start = at - offset % size_bytes, .size_bytes = size_bytes};
}

}  // namespace whyrss::shim
