// unseen_memory WAY MIB: memory that no hook sees, and blocks of which a part is given away. Ways: raw (mapped by
// instructions of its own, 1 MiB each), raw_beside (among blocks of malloc), cut (a quarter of a block is mapped over,
// a sixteenth of it unmapped).
#define _GNU_SOURCE
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { kMib = 1 << 20 };

static void* map_raw(size_t size_bytes) {
  register long flags __asm__("r10") = MAP_PRIVATE | MAP_ANONYMOUS;
  register long file __asm__("r8") = -1;
  register long offset __asm__("r9") = 0;
  void* mapped = NULL;
  __asm__ volatile("syscall"
                   : "=a"(mapped)
                   : "a"((long)SYS_mmap), "D"(0L), "S"(size_bytes), "d"((long)(PROT_READ | PROT_WRITE)), "r"(flags),
                     "r"(file), "r"(offset)
                   : "rcx", "r11", "memory");
  return mapped;
}

static void fill(char* start, size_t size_bytes) {
  for (size_t i = 0; i < size_bytes; i += 4096) start[i] = 1;
}

static void make_raw(size_t mib, int blocks_too) {
  for (size_t i = 0; i < mib; ++i) {
    fill(map_raw(kMib), kMib);
    if (blocks_too && i % 16 == 0) fill(malloc(200 << 10), 200 << 10);
  }
}

static char* make_block(size_t size_bytes) {
  char* block = malloc(size_bytes);
  fill(block, size_bytes);
  return block;
}

static void cut_block(size_t mib) {
  char* block = make_block(mib * kMib);
  char* aligned = (char*)(((size_t)block + 4095) & ~(size_t)4095);
  const size_t quarter = mib * kMib / 4;
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  fill(mmap(aligned + quarter, quarter, PROT_READ | PROT_WRITE, flags, -1, 0), quarter);
  munmap(aligned + 3 * quarter, quarter / 4);
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const size_t mib = (size_t)atol(argv[2]);
  if (strcmp(argv[1], "raw") == 0) make_raw(mib, 0);
  if (strcmp(argv[1], "raw_beside") == 0) make_raw(mib, 1);
  if (strcmp(argv[1], "cut") == 0) cut_block(mib);
  return 0;
}
