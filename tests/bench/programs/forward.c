// Preloaded: a malloc family and wrappers of CPython's object and mem domains that only forward. It is what
// interception costs before anything is counted or sampled: a tool that wraps each call costs at least this much.
//     LD_PRELOAD=forward.so PROGRAM
// PYTHONMALLOC=malloc puts allocators of its own in place of the wrappers: malloc alone is forwarded then.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

extern void* __libc_malloc(size_t size);
extern void* __libc_calloc(size_t count, size_t size);
extern void* __libc_realloc(void* block, size_t size);
extern void __libc_free(void* block);

// Read at each call, as of an interposer that finds the next definition at run time.
static void* (*volatile next_malloc)(size_t) = __libc_malloc;
static void* (*volatile next_calloc)(size_t, size_t) = __libc_calloc;
static void* (*volatile next_realloc)(void*, size_t) = __libc_realloc;
static void (*volatile next_free)(void*) = __libc_free;

void* malloc(size_t size) { return next_malloc(size); }
void* calloc(size_t count, size_t size) { return next_calloc(count, size); }
void* realloc(void* block, size_t size) { return next_realloc(block, size); }
void free(void* block) { next_free(block); }

// PyMemAllocatorEx of Include/cpython/pymem.h.
struct Allocator {
  void* context;
  void* (*malloc)(void* context, size_t size);
  void* (*calloc)(void* context, size_t count, size_t size);
  void* (*realloc)(void* context, void* block, size_t size);
  void (*free)(void* context, void* block);
};

static void* object_malloc(void* context, size_t size) {
  struct Allocator* next = context;
  return next->malloc(next->context, size);
}
static void* object_calloc(void* context, size_t count, size_t size) {
  struct Allocator* next = context;
  return next->calloc(next->context, count, size);
}
static void* object_realloc(void* context, void* block, size_t size) {
  struct Allocator* next = context;
  return next->realloc(next->context, block, size);
}
static void object_free(void* context, void* block) {
  struct Allocator* next = context;
  next->free(next->context, block);
}

__attribute__((constructor)) static void wrap_domains(void) {
  void (*get)(int, struct Allocator*) = (void (*)(int, struct Allocator*))dlsym(RTLD_DEFAULT, "PyMem_GetAllocator");
  void (*set)(int, struct Allocator*) = (void (*)(int, struct Allocator*))dlsym(RTLD_DEFAULT, "PyMem_SetAllocator");
  if (get == NULL || set == NULL) return;
  static struct Allocator next[3];
  for (int domain = 1; domain <= 2; ++domain) {  // PYMEM_DOMAIN_MEM, PYMEM_DOMAIN_OBJ
    get(domain, &next[domain]);
    struct Allocator wrapper = {&next[domain], object_malloc, object_calloc, object_realloc, object_free};
    set(domain, &wrapper);
  }
}
