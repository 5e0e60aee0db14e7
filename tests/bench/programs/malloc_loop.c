// Small blocks of mixed size, 64 of them alive at a time, 150 million in all.
#include <stdlib.h>

int main(void) {
  static char* alive[64];
  unsigned seed = 1;
  for (long round = 0; round < 150 * 1000 * 1000; ++round) {
    seed = seed * 1103515245U + 12345U;
    unsigned slot = (seed >> 8) % 64;
    free(alive[slot]);
    alive[slot] = malloc(16 + (seed >> 16) % 1000);
    *alive[slot] = 1;
  }
}
