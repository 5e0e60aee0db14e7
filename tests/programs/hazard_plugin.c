/* A library that stack_hazards opens and closes: its frames are FRAME_BYTES large. */
#include <stdlib.h>

void* plugin_descend(int depth) {
  volatile char room[FRAME_BYTES];
  room[depth] = (char)depth;
  void* block = depth > 0 ? plugin_descend(depth - 1) : malloc(0xA000);
  room[depth] = room[depth / 2];
  return block;
}
