// heap_shapes SHAPE BYTES [TIMES]: one block by the named call, between the marks "begin" and "end", and
// its release by the call that belongs to it; again and again. Without TIMES a mapping comes and goes in between, so
// that the record of the block is not the last one. Exit status 9: no such shape, 3: the call failed.
#include <dlfcn.h>
#include <malloc.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>

#include "shim/whyrss.h"

namespace {

using Sized = void (*)(void*, std::size_t);
using AlignedSized = void (*)(void*, std::size_t, std::size_t);
using Mallocx = void* (*)(std::size_t, int);
using Rallocx = void* (*)(void*, std::size_t, int);
using Dallocx = void (*)(void*, int);
using Sdallocx = void (*)(void*, std::size_t, int);

template <class Function>
Function by_name(const char* name) {
  auto* found = dlsym(RTLD_DEFAULT, name);
  if (found == nullptr) std::exit(4);
  return reinterpret_cast<Function>(found);
}

constexpr std::align_val_t kAligned{256};

void* g_block = nullptr;

struct Shape {
  std::string_view name;
  void* (*allocate)(std::size_t);
  void (*release)(std::size_t);
};

const Shape kShapes[] = {
    {"malloc", [](std::size_t n) { return std::malloc(n); }, [](std::size_t) { std::free(g_block); }},
    {"calloc", [](std::size_t n) { return std::calloc(1, n); }, [](std::size_t) { std::free(g_block); }},
    {"realloc_new", [](std::size_t n) { return std::realloc(nullptr, n); }, [](std::size_t) { std::free(g_block); }},
    {"realloc_grown", [](std::size_t n) { return std::realloc(std::malloc(100), n); },
     [](std::size_t) { std::free(g_block); }},
    {"realloc_shrunk", [](std::size_t n) { return std::malloc(n); },
     [](std::size_t) { std::free(std::realloc(g_block, 100)); }},
    {"realloc_failed",
     [](std::size_t n) {
       g_block = std::malloc(n);
       return std::realloc(g_block, std::size_t{1} << 62) == nullptr ? g_block : nullptr;
     },
     [](std::size_t) { std::free(g_block); }},
    {"realloc_zero", [](std::size_t n) { return std::malloc(n); },
     [](std::size_t) { g_block = std::realloc(g_block, 0), std::free(g_block); }},
    {"reallocarray", [](std::size_t n) { return reallocarray(nullptr, 1, n); },
     [](std::size_t) { std::free(g_block); }},
    {"posix_memalign",
     [](std::size_t n) {
       void* block = nullptr;
       return posix_memalign(&block, 256, n) == 0 ? block : nullptr;
     },
     [](std::size_t) { std::free(g_block); }},
    {"aligned_alloc", [](std::size_t n) { return std::aligned_alloc(256, n); },
     [](std::size_t) { std::free(g_block); }},
    {"memalign", [](std::size_t n) { return memalign(256, n); }, [](std::size_t) { std::free(g_block); }},
    {"valloc", [](std::size_t n) { return valloc(n); }, [](std::size_t) { std::free(g_block); }},
    {"pvalloc", [](std::size_t n) { return pvalloc(n); }, [](std::size_t) { std::free(g_block); }},
    {"free_sized", [](std::size_t n) { return std::malloc(n); },
     [](std::size_t n) { by_name<Sized>("free_sized")(g_block, n); }},
    {"free_aligned_sized", [](std::size_t n) { return std::aligned_alloc(256, n); },
     [](std::size_t n) { by_name<AlignedSized>("free_aligned_sized")(g_block, 256, n); }},
    {"new", [](std::size_t n) { return ::operator new(n); }, [](std::size_t) { ::operator delete(g_block); }},
    {"new_array", [](std::size_t n) { return ::operator new[](n); }, [](std::size_t) { ::operator delete[](g_block); }},
    {"new_nothrow", [](std::size_t n) { return ::operator new(n, std::nothrow); },
     [](std::size_t) { ::operator delete(g_block, std::nothrow); }},
    {"new_array_nothrow", [](std::size_t n) { return ::operator new[](n, std::nothrow); },
     [](std::size_t) { ::operator delete[](g_block, std::nothrow); }},
    {"new_aligned", [](std::size_t n) { return ::operator new(n, kAligned); },
     [](std::size_t) { ::operator delete(g_block, kAligned); }},
    {"new_array_aligned", [](std::size_t n) { return ::operator new[](n, kAligned); },
     [](std::size_t) { ::operator delete[](g_block, kAligned); }},
    {"new_aligned_nothrow", [](std::size_t n) { return ::operator new(n, kAligned, std::nothrow); },
     [](std::size_t) { ::operator delete(g_block, kAligned, std::nothrow); }},
    {"new_array_aligned_nothrow", [](std::size_t n) { return ::operator new[](n, kAligned, std::nothrow); },
     [](std::size_t) { ::operator delete[](g_block, kAligned, std::nothrow); }},
    {"delete_sized", [](std::size_t n) { return ::operator new(n); },
     [](std::size_t n) { ::operator delete(g_block, n); }},
    {"delete_array_sized", [](std::size_t n) { return ::operator new[](n); },
     [](std::size_t n) { ::operator delete[](g_block, n); }},
    {"delete_aligned_sized", [](std::size_t n) { return ::operator new(n, kAligned); },
     [](std::size_t n) { ::operator delete(g_block, n, kAligned); }},
    {"delete_array_aligned_sized", [](std::size_t n) { return ::operator new[](n, kAligned); },
     [](std::size_t n) { ::operator delete[](g_block, n, kAligned); }},
    {"mallocx", [](std::size_t n) { return by_name<Mallocx>("mallocx")(n, 0); },
     [](std::size_t) { by_name<Dallocx>("dallocx")(g_block, 0); }},
    {"rallocx", [](std::size_t n) { return by_name<Rallocx>("rallocx")(std::malloc(100), n, 0); },
     [](std::size_t n) { by_name<Sdallocx>("sdallocx")(g_block, n, 0); }},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) return 9;
  const int times = argc == 4 ? std::atoi(argv[3]) : 1;
  const std::size_t bytes = std::strtoull(argv[2], nullptr, 10);
  for (const Shape& shape : kShapes) {
    if (shape.name != argv[1]) continue;
    WHYRSS_MARK("begin");
    for (int time = 0; time < times; ++time) {
      g_block = shape.allocate(bytes);
      if (g_block == nullptr) return 3;
      std::memset(g_block, 1, bytes);
      if (argc == 3) munmap(mmap(nullptr, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1 << 20);
      shape.release(bytes);
    }
    WHYRSS_MARK("end");
    return 0;
  }
  return 9;
}
