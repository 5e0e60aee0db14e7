/* A plugin with blocks: made here, released here or by the program. */
#include <stdlib.h>
#include <string.h>

void* make_block(size_t size) {
  void* block = malloc(size);
  memset(block, 3, size);
  return block;
}

void release_block(void* block) { free(block); }
