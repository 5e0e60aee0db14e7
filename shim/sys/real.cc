#include "shim/sys/real.h"

#include <dlfcn.h>

#include <cerrno>
#include <string_view>

#include "shim/sys/loaded_images.h"
#include "shim/sys/newer_functions.h"
#include "shim/sys/single_threaded.h"

// entry_process.cc; entry_syscall.S jumps to it.
extern "C" __attribute__((visibility("hidden"))) long (*whyrss_real_syscall)(long, ...);
// entry_lookup.cc; entry_lookup.S jumps to them.
extern "C" __attribute__((visibility("hidden"))) void* (*whyrss_real_dlsym)(void*, const char*);
extern "C" __attribute__((visibility("hidden"))) void* (*whyrss_real_dlvsym)(void*, const char*, const char*);

namespace whyrss::shim {

constinit std::atomic<bool> g_is_resolved{false};

namespace {

void* malloc_unresolved(std::size_t size) noexcept {
  resolve_real();
  return real.malloc(size);  // NOLINT(clang-analyzer-core.CallAndMessage): libc has it
}

void free_unresolved(void* block) noexcept {
  resolve_real();
  real.free(block);  // NOLINT(clang-analyzer-core.CallAndMessage): libc has it
}

template <class Function>
void look_up(Function*& function, const SymbolTable& symbols, const char* name) noexcept {
  if (function == nullptr) set_found(function, symbols.find(name));
}

constexpr bool is_cxx(std::string_view name) noexcept { return name.starts_with("_Z"); }

void stand_in(Real& found) noexcept {
  if (found.preadv64v2 == nullptr) found.preadv64v2 = no_preadv64v2;
  if (found.mlock2 == nullptr) found.mlock2 = no_mlock2;
  if (found.memfd_create == nullptr) found.memfd_create = make_memfd;
  if (found.__cxa_thread_atexit_impl == nullptr) found.__cxa_thread_atexit_impl = run_at_thread_end;
}

// The C++ runtime, where it came by dlopen().
int find_cxx_runtime(dl_phdr_info* image, std::size_t, void* path) noexcept {
  const std::string_view name(image->dlpi_name != nullptr ? image->dlpi_name : "");
  if (name.find("libstdc++.so.6") == std::string_view::npos && name.find("libc++.so.1") == std::string_view::npos)
    return 0;
  *static_cast<const char**>(path) = image->dlpi_name;
  return 1;
}

}  // namespace

constinit Real real{.malloc = malloc_unresolved, .free = free_unresolved};

void fill_real() noexcept {
  find_single_threaded();
  Real found{};
  const link_map* own = own_image();
  for (const link_map* image = own != nullptr ? own->l_next : nullptr; image != nullptr; image = image->l_next) {
    const SymbolTable symbols = symbols_of(*image);
#define WHYRSS_LOOK_UP(name, result, parameters) look_up(found.name, symbols, #name);
    WHYRSS_REAL_FUNCTIONS(WHYRSS_LOOK_UP)
#undef WHYRSS_LOOK_UP
  }
  stand_in(found);
  real = found;
  whyrss_real_syscall = found.syscall;
  whyrss_real_dlsym = found.dlsym;
  whyrss_real_dlvsym = found.dlvsym;
  g_is_resolved.store(true, std::memory_order_release);
}

void resolve_cxx_again() noexcept {
  const int saved_errno = errno;
  const char* path = nullptr;
  dl_iterate_phdr(find_cxx_runtime, &path);
  // Kept open: the table must never point into an unloaded library. Only where it is loaded, so that this leaves no
  // error for the program's dlerror().
  void* library = path != nullptr ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : nullptr;
  if (library != nullptr) {
    const SymbolTable symbols = symbols_of(*static_cast<const link_map*>(library));
    Real found = real;
#define WHYRSS_LOOK_UP(name, result, parameters) \
  if constexpr (is_cxx(#name)) set_found(found.name, symbols.find(#name));
    WHYRSS_REAL_FUNCTIONS(WHYRSS_LOOK_UP)
#undef WHYRSS_LOOK_UP
    real = found;
  }
  errno = saved_errno;
}

void resolve_libc_again() noexcept {
  const int saved_errno = errno;
#define WHYRSS_LOOK_UP(name) \
  if (real.name == nullptr) set_found(real.name, find_late_in_libc(#name))
  WHYRSS_LOOK_UP(pthread_create);
  WHYRSS_LOOK_UP(pthread_sigmask);
  WHYRSS_LOOK_UP(dlclose);
  WHYRSS_LOOK_UP(dlsym);
  WHYRSS_LOOK_UP(dlvsym);
#undef WHYRSS_LOOK_UP
  whyrss_real_dlsym = real.dlsym;
  whyrss_real_dlvsym = real.dlvsym;
  // Kept open, as above; libpthread is never unloaded.
  void* (*open)(const char*, int) = nullptr;
  if (set_found(open, find_late_in_libc("dlopen"))) open("libdl.so.2", RTLD_LAZY | RTLD_NOLOAD);
  errno = saved_errno;
}

}  // namespace whyrss::shim
