#include "shim/observe/sampled_objects.h"

#include "shim/events/caller.h"
#include "shim/heap/live_blocks.h"
#include "shim/heap/pymalloc_pages.h"
#include "shim/observe/observe_object.h"

namespace whyrss::shim {
namespace {

const ObjectAllocator& real_of(void* context) noexcept { return *static_cast<const ObjectAllocator*>(context); }

[[gnu::always_inline]] inline void* sampled(const Caller& caller, void* object, std::size_t size) noexcept {
  const ObjectSample sample = take_object_sample(size);
  if (!sample || object == nullptr) return object;
  // What does not fit into a pool comes from malloc, which has counted it.
  if (const PymallocBlock block = pymalloc_block_at(object); block.start != 0)
    log_sampled_object(caller, sample, block, object);
  return object;
}

[[gnu::noinline]] void* allocate_slowly(void* context, std::size_t size) {
  return sampled(caller_here(), real_of(context).allocate(real_of(context).context, size), size);
}

void* allocate(void* context, std::size_t size) {
  if (passes_unsampled(size)) [[likely]]
    return real_of(context).allocate(real_of(context).context, size);
  return allocate_slowly(context, size);
}

[[gnu::noinline]] void* allocate_zeroed_slowly(void* context, std::size_t count, std::size_t size) {
  void* object = real_of(context).allocate_zeroed(real_of(context).context, count, size);
  return sampled(caller_here(), object, count * size);
}

void* allocate_zeroed(void* context, std::size_t count, std::size_t size) {
  if (passes_unsampled(count * size)) [[likely]]
    return real_of(context).allocate_zeroed(real_of(context).context, count, size);
  return allocate_zeroed_slowly(context, count, size);
}

[[gnu::noinline]] void* resize_slowly(void* context, void* object, std::size_t size, bool passes) {
  const bool was_sampled = live_blocks().may_contain(object) && log_sampled_release(object);
  void* moved = real_of(context).resize(real_of(context).context, object, size);
  if (moved == nullptr && was_sampled) log_sampled_release_undone(object);
  return passes ? moved : sampled(caller_here(), moved, size);
}

void* resize(void* context, void* object, std::size_t size) {
  const bool passes = passes_unsampled(size);
  if (passes && !live_blocks().may_contain(object)) [[likely]]
    return real_of(context).resize(real_of(context).context, object, size);
  return resize_slowly(context, object, size, passes);
}

[[gnu::noinline]] void release_slowly(void* context, void* object) {
  log_sampled_release(object);
  real_of(context).release(real_of(context).context, object);
}

void release(void* context, void* object) {
  if (live_blocks().may_contain(object)) [[unlikely]]
    return release_slowly(context, object);
  real_of(context).release(real_of(context).context, object);
}

}  // namespace

ObjectAllocator sampling_before(ObjectAllocator& real) noexcept {
  return {
      .context = &real, .allocate = allocate, .allocate_zeroed = allocate_zeroed, .resize = resize, .release = release};
}

}  // namespace whyrss::shim
