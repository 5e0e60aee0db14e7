// Blocks of 40 to 104 KiB, each logged with its stack: 64 alive at a time, 2 million in all, first page used.
#include <stdlib.h>

int main(void) {
  static char* alive[64];
  unsigned seed = 1;
  for (long round = 0; round < 2 * 1000 * 1000; ++round) {
    seed = seed * 1103515245U + 12345U;
    unsigned slot = (seed >> 8) % 64;
    free(alive[slot]);
    alive[slot] = malloc(40 * 1024 + (seed >> 14) % (64 * 1024));
    *alive[slot] = 1;
  }
}
