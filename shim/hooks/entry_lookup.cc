// dlsym and dlvsym of the malloc family on a library's handle: ctypes.CDLL("libc.so.6").malloc, plugins and bridges of
// languages. What libc's own handle gives would bypass our entries: blocks that are not recorded, and releases of
// blocks that never were. So where the answer is the very function that our entry calls, the program gets the entry;
// malloc by its name is that entry too. Any other answer stays: of another allocator, of another name space (dlmopen),
// an error. Names of Arrow's that are ours are there only where a library of the program has them too.
#include <dlfcn.h>

#include <array>
#include <string_view>

#include "shim/hooks/arrow_definitions.h"
#include "shim/sys/real.h"

// Our own entries, also where the program defines the name (entry_heap.cc).
#define WHYRSS_OWN(name) extern "C" __attribute__((visibility("hidden"))) char whyrss_own_##name;
#define WHYRSS_LOOKED_UP(X) \
  X(malloc)                 \
  X(calloc)                 \
  X(realloc)                \
  X(reallocarray)           \
  X(free)                   \
  X(posix_memalign)         \
  X(aligned_alloc)          \
  X(memalign)               \
  X(valloc)                 \
  X(pvalloc)                \
  X(free_sized)             \
  X(free_aligned_sized)
WHYRSS_LOOKED_UP(WHYRSS_OWN)
#undef WHYRSS_OWN

// What entry_lookup.S jumps to; fill_real() sets them, and leaves what libc does not have.
extern "C" {
__attribute__((visibility("hidden"))) void* (*whyrss_real_dlsym)(void*, const char*) = nullptr;
__attribute__((visibility("hidden"))) void* (*whyrss_real_dlvsym)(void*, const char*, const char*) = nullptr;
}

namespace whyrss::shim {
namespace {

struct Entry {
  std::string_view name;
  void* own = nullptr;
  void* next = nullptr;  // what it calls; nullptr: libc has none
};

// {}: of another function.
Entry heap_entry(const char* name) noexcept {
  if (name == nullptr) return {};
  const std::string_view wanted(name);
#define WHYRSS_ENTRY_OF(function) \
  if (wanted == #function) return {#function, &whyrss_own_##function, reinterpret_cast<void*>(real.function)};
  WHYRSS_LOOKED_UP(WHYRSS_ENTRY_OF)
#undef WHYRSS_ENTRY_OF
  return {};
}

// The real function has reported its errors.
void* entry_instead(const Entry& entry, void* found) noexcept {
  return found != nullptr && found == entry.next ? entry.own : found;
}

// Where no library has the name: the error of a look-up behind us.
template <class Lookup>
void* arrow_entry(const ArrowEntry& entry, void* handle, Lookup look_up) noexcept {
  const bool in_library = handle != RTLD_DEFAULT && handle != RTLD_NEXT;
  void* const found = in_library ? look_up(handle) : nullptr;
  const Definitions others = definitions_of(entry);
  if (in_library && found != entry.own) return found == others.first && !others.several ? entry.own : found;
  return others.first != nullptr && !others.several ? entry.own : look_up(RTLD_NEXT);
}

void resolve_lookup() noexcept {
  resolve_real();
  if (whyrss_real_dlsym == nullptr) resolve_libc_again();
}

}  // namespace
}  // namespace whyrss::shim

extern "C" {

__attribute__((visibility("hidden"))) void* whyrss_dlsym(void* handle, const char* name) noexcept {
  whyrss::shim::resolve_lookup();
  if (const whyrss::shim::ArrowEntry arrow = whyrss::shim::arrow_entry_named(name); arrow.own != nullptr)
    return whyrss::shim::arrow_entry(arrow, handle, [=](void* in) { return whyrss_real_dlsym(in, name); });
  const whyrss::shim::Entry entry = whyrss::shim::heap_entry(name);
  if (entry.own == nullptr) return whyrss_real_dlsym(handle, name);
  return whyrss::shim::entry_instead(entry, whyrss_real_dlsym(handle, name));
}

__attribute__((visibility("hidden"))) void* whyrss_dlvsym(void* handle, const char* name,
                                                          const char* version) noexcept {
  whyrss::shim::resolve_lookup();
  if (const whyrss::shim::ArrowEntry arrow = whyrss::shim::arrow_entry_named(name); arrow.own != nullptr)
    return whyrss::shim::arrow_entry(arrow, handle, [=](void* in) { return whyrss_real_dlvsym(in, name, version); });
  const whyrss::shim::Entry entry = whyrss::shim::heap_entry(name);
  if (entry.own == nullptr) return whyrss_real_dlvsym(handle, name, version);
  return whyrss::shim::entry_instead(entry, whyrss_real_dlvsym(handle, name, version));
}

__attribute__((visibility("hidden"))) int whyrss_is_arrow_entry(const char* name) noexcept {
  return whyrss::shim::arrow_entry_named(name).own != nullptr ? 1 : 0;
}

// Before the first event of the program, or of a library that brought libdl (before glibc 2.34). Never nullptr then.
__attribute__((visibility("hidden"))) void* (*whyrss_resolve_dlsym() noexcept)(void*, const char*) {
  whyrss::shim::resolve_lookup();
  return whyrss_real_dlsym;
}

__attribute__((visibility("hidden"))) void* (*whyrss_resolve_dlvsym() noexcept)(void*, const char*, const char*) {
  whyrss::shim::resolve_lookup();
  return whyrss_real_dlvsym;
}
}
