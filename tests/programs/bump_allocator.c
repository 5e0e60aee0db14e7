/* An allocator that may be interrupted anywhere, and left for good: blocks are taken off the front of one mapping by an
 * atomic add, and never used again. As a library it is preloaded, linked into a program it is that program's own. None
 * of its functions calls another exported one: the library in front of it would take that for a call of the program. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

enum { HEADER_BYTES = 16 };
static const size_t POOL_BYTES = (size_t)1 << 34;
static _Atomic(uintptr_t) pool_start;
static atomic_size_t pool_used;

static uintptr_t pool(void) {
  uintptr_t start = atomic_load(&pool_start);
  if (start != 0) return start;
  void* made = mmap(NULL, POOL_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) return 0;
  if (atomic_compare_exchange_strong(&pool_start, &start, (uintptr_t)made)) return (uintptr_t)made;
  munmap(made, POOL_BYTES);
  return start;
}

static void* take(size_t alignment, size_t size) {
  if (alignment < HEADER_BYTES) alignment = HEADER_BYTES;
  if (size < POOL_BYTES && pool() != 0) {
    size = (size + 15) & ~(size_t)15;
    size_t room = size + alignment + HEADER_BYTES;
    size_t at = atomic_fetch_add(&pool_used, room);
    if (at + room <= POOL_BYTES) {
      uintptr_t block = (pool() + at + HEADER_BYTES + alignment - 1) & ~(alignment - 1);
      ((size_t*)block)[-1] = size;
      return (void*)block;
    }
    atomic_fetch_sub(&pool_used, room);
  }
  errno = ENOMEM;
  return NULL;
}

static size_t size_of(void* block) { return block == NULL ? 0 : ((size_t*)block)[-1]; }

void* malloc(size_t size) { return take(HEADER_BYTES, size); }
void* memalign(size_t alignment, size_t size) { return take(alignment, size); }
void* aligned_alloc(size_t alignment, size_t size) { return take(alignment, size); }
size_t malloc_usable_size(void* block) { return size_of(block); }
void free(void* block) { (void)block; }

void* calloc(size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) {
    errno = ENOMEM;
    return NULL;
  }
  return take(HEADER_BYTES, bytes); /* never used before: zero */
}

void* realloc(void* block, size_t size) {
  void* grown = take(HEADER_BYTES, size);
  size_t had = size_of(block);
  if (grown != NULL && block != NULL) memcpy(grown, block, had < size ? had : size);
  return grown;
}

int posix_memalign(void** block, size_t alignment, size_t size) {
  void* made = take(alignment, size);
  if (made == NULL) return ENOMEM;
  *block = made;
  return 0;
}
