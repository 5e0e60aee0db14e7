// Ends by a signal in the middle of a burst that takes a few hundredths of a second.
//   sudden_end small HOW       60 MiB in blocks of 200 bytes
//   sudden_end large HOW       117 blocks of 1 MB
//   sudden_end idle HOW        40 MiB, a rest of 0.6 s, and 100 blocks of 1 MB
//   sudden_end drop HOW        a rest of 0.6 s, 117 blocks of 1 MB, and 77 of them are freed
// HOW: abort, kill, or fault. Writes its own VmRSS and VmHWM in KiB as its last act.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kLarge = 1000 * 1000, kSmall = 200, kMostBlocks = 400 };
static char* g_blocks[kMostBlocks];

static void burst(int first, int count, size_t bytes) {
  for (int i = first; i < first + count; ++i) {
    g_blocks[i % kMostBlocks] = malloc(bytes);
    memset(g_blocks[i % kMostBlocks], 1, bytes);
  }
}

static void report_size(void) {
  char line[256];
  FILE* status = fopen("/proc/self/status", "r");
  while (status != NULL && fgets(line, sizeof line, status) != NULL)
    if (strncmp(line, "VmRSS:", 6) == 0 || strncmp(line, "VmHWM:", 6) == 0) fputs(line, stdout);
  fflush(stdout);
}

static void end(const char* how) {
  if (strcmp(how, "abort") == 0) abort();
  if (strcmp(how, "kill") == 0) kill(getpid(), SIGKILL);
  *(volatile int*)NULL = 1;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const char* what = argv[1];
  if (strcmp(what, "small") == 0) burst(0, 300 * 1000, kSmall);
  if (strcmp(what, "large") == 0) burst(0, 117, kLarge);
  if (strcmp(what, "idle") == 0) {
    burst(0, 40, kLarge);
    usleep(600 * 1000);
    burst(40, 100, kLarge);
  }
  if (strcmp(what, "drop") == 0) {
    usleep(600 * 1000);
    burst(0, 117, kLarge);
    for (int i = 0; i < 77; ++i) free(g_blocks[i]);
  }
  report_size();
  end(argv[2]);
}
