#include "shim/observe/python_memory.h"

#include <atomic>
#include <cerrno>

#include "shim/events/caller.h"
#include "shim/events/guard.h"
#include "shim/events/mapping.h"
#include "shim/events/session_state.h"
#include "shim/heap/heap_settings.h"
#include "shim/heap/pymalloc_pages.h"
#include "shim/observe/object_allocator.h"
#include "shim/observe/observe_object.h"
#include "shim/observe/python_stats_call.h"
#include "shim/observe/sampled_objects.h"
#include "shim/stacks/python_interpreter.h"

namespace whyrss::shim {
namespace {

struct ArenaAllocator {  // PyObjectArenaAllocator
  void* context;
  void* (*allocate)(void* context, std::size_t size);
  void (*release)(void* context, void* address, std::size_t size);
};

// PYMEM_DOMAIN_MEM and PYMEM_DOMAIN_OBJ; the raw domain is malloc.
constexpr int kDomains[] = {1, 2};

constinit ArenaAllocator g_real_arena{};
using AccessArenas = void (*)(ArenaAllocator*);
constinit AccessArenas g_get_arenas = nullptr, g_set_arenas = nullptr;
constinit ObjectAllocator g_real_objects[std::size(kDomains)]{};
using AccessObjects = void (*)(int domain, ObjectAllocator*);
constinit AccessObjects g_get_objects = nullptr, g_set_objects = nullptr;
constinit ObjectAllocator g_wrapped_objects[std::size(kDomains)]{};  // what was set in their place
constinit std::atomic<bool> g_objects_wrapped{false};
constinit std::atomic<bool> g_first_is_coming{false};
constinit std::uint8_t g_minor = 0;

// The arena allocator serves stacks of Python frames as well, of 16 KiB and rarely more.
bool is_arena_size(std::size_t size_bytes) noexcept {
  constexpr std::size_t kKiB = 1024;
  return g_minor < 10 ? size_bytes == 256 * kKiB : size_bytes == 1024 * kKiB || size_bytes == 2048 * kKiB;
}

const ObjectAllocator& real_of(void* context) noexcept { return *static_cast<const ObjectAllocator*>(context); }

[[gnu::always_inline]] inline void* logged(const Caller& caller, void* object) noexcept {
  if (object == nullptr) return object;
  // What does not fit into a pool comes from malloc, which has logged it.
  if (const PymallocBlock block = pymalloc_block_at(object); block.start != 0) observe_object(caller, block);
  return object;
}

void* allocate_logged(void* context, std::size_t size) {
  return logged(caller_here(), real_of(context).allocate(real_of(context).context, size));
}

void* allocate_zeroed_logged(void* context, std::size_t count, std::size_t size) {
  return logged(caller_here(), real_of(context).allocate_zeroed(real_of(context).context, count, size));
}

void* resize_logged(void* context, void* object, std::size_t size) {
  const PymallocBlock before = object != nullptr ? pymalloc_block_at(object) : PymallocBlock{};
  if (before.start != 0) observe_object_release(before);
  void* moved = real_of(context).resize(real_of(context).context, object, size);
  if (moved == nullptr && before.start != 0) observe_object_release_undone(before);
  return logged(caller_here(), moved);
}

void release_logged(void* context, void* object) {
  if (object != nullptr)
    if (const PymallocBlock block = pymalloc_block_at(object); block.start != 0) observe_object_release(block);
  real_of(context).release(real_of(context).context, object);
}

constexpr ObjectAllocator kLogging{.context = nullptr,
                                   .allocate = allocate_logged,
                                   .allocate_zeroed = allocate_zeroed_logged,
                                   .resize = resize_logged,
                                   .release = release_logged};

// Not before the first arena: until then the interpreter sets its allocators itself, as PYTHONMALLOC and its
// configuration say.
void wrap_objects() noexcept {
  if (!heap().exact && !heap().sample_objects) return;
  if (g_get_objects == nullptr || g_objects_wrapped.load(std::memory_order_relaxed)) return;
  for (std::size_t i = 0; i < std::size(kDomains); ++i) {
    ObjectAllocator& real = g_real_objects[i];
    g_get_objects(kDomains[i], &real);
    ObjectAllocator wrapped = kLogging;
    wrapped.context = &real;
    if (!heap().exact) wrapped = sampling_before(real);
    g_wrapped_objects[i] = wrapped;
    g_set_objects(kDomains[i], &wrapped);
  }
  g_objects_wrapped.store(true, std::memory_order_release);
}

// Whether an allocator that the program has set later stands before ours.
bool are_wrappers_first() noexcept {
  for (std::size_t i = 0; i < std::size(kDomains); ++i) {
    ObjectAllocator now{};
    g_get_objects(kDomains[i], &now);
    if (now.allocate != g_wrapped_objects[i].allocate || now.context != g_wrapped_objects[i].context) return false;
  }
  return true;
}

void set_all_objects(ObjectAllocator (&allocators)[std::size(kDomains)]) noexcept {
  for (std::size_t i = 0; i < std::size(kDomains); ++i) g_set_objects(kDomains[i], &allocators[i]);
}

void mark_arena(const void* arena, std::size_t size) noexcept {
  const int saved_errno = errno;
  ThreadState& thread = thread_state();
  if (Busy busy(thread); busy.taken() && enter_thread(thread)) mark_pymalloc_arena(thread, arena, size);
  errno = saved_errno;
}

void* allocate_arena(void* context, std::size_t size) {
  ThreadState& thread = thread_state();
  const trace::MapOrigin before = thread.map_origin;
  thread.map_origin = trace::MapOrigin::pymalloc;
  void* arena = g_real_arena.allocate(context, size);
  thread.map_origin = before;
  if (arena == nullptr || !is_arena_size(size)) return arena;
  mark_arena(arena, size);
  wrap_objects();
  return arena;
}

void release_arena(void* context, void* arena, std::size_t size) {
  if (arena != nullptr && is_arena_size(size)) clear_pymalloc_arena(arena, size);
  g_real_arena.release(context, arena, size);
}

void wrap_arenas() noexcept {
  ArenaAllocator wrapped{};
  g_get_arenas(&wrapped);
  if (wrapped.allocate == allocate_arena) return;
  g_real_arena = wrapped;
  wrapped.allocate = allocate_arena;
  wrapped.release = release_arena;
  g_set_arenas(&wrapped);
}

// What is wrapped stays as it is.
void wrap_all_again() noexcept {
  wrap_arenas();
  if (g_objects_wrapped.load(std::memory_order_relaxed) && !are_wrappers_first()) g_objects_wrapped.store(false);
  wrap_objects();
}

}  // namespace

void wrap_python_memory(const Library& library, const PythonLayout& layout, bool first_is_coming) noexcept {
  if (layout.free_threaded || !library.find("PyObject_GetArenaAllocator", g_get_arenas) ||
      !library.find("PyObject_SetArenaAllocator", g_set_arenas))
    return;
  g_minor = layout.minor;
  if (!library.find("PyMem_GetAllocator", g_get_objects) || !library.find("PyMem_SetAllocator", g_set_objects))
    g_get_objects = nullptr;
  if (heap().exact || heap().sample_objects) find_stats_call(library);
  set_pymalloc_pool_bytes(layout.minor < 10 ? 4096 : 16384);
  wrap_arenas();
  g_first_is_coming.store(first_is_coming, std::memory_order_release);
}

bool set_object_wrappers_aside() noexcept {
  if (!g_objects_wrapped.load(std::memory_order_acquire) || !are_wrappers_first()) return false;
  set_all_objects(g_real_objects);
  return true;
}

void set_object_wrappers_again() noexcept { set_all_objects(g_wrapped_objects); }

void await_next_interpreter() noexcept {
  if (g_real_arena.allocate != nullptr) g_first_is_coming.store(true, std::memory_order_release);
}

void wrap_next_interpreter() noexcept {
  if (g_first_is_coming.exchange(false)) wrap_all_again();
}

bool is_first_python_arena(ThreadState& thread, const Caller& caller, const Mapping& mapping) noexcept {
  if (!g_first_is_coming.load(std::memory_order_relaxed) || thread.map_origin == trace::MapOrigin::pymalloc)
    return false;
  const trace::PythonRecord& python = g_python.record;
  if (mapping.fd >= 0 || !is_arena_size(mapping.size_bytes) || caller.ip < python.runtime_start ||
      caller.ip >= python.runtime_end || !g_first_is_coming.exchange(false))
    return false;
  mark_pymalloc_arena(thread, mapping.address, mapping.size_bytes);
  wrap_all_again();
  return true;
}

}  // namespace whyrss::shim
