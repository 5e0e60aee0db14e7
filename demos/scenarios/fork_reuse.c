// Frees nearly all of its heap, then forks a child that uses 100 MiB: fork_reuse [trim]
// Without malloc_trim the child gets the parent's dead pages, and each write to one copies it.
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kBlock = 4000, kBlocks = 75000, kChildBlocks = 26000, kKeepEvery = 100 };

static char* blocks[kBlocks];
static char* child_blocks[kChildBlocks];

static void load(void) {
  for (int i = 0; i < kBlocks; ++i) {
    blocks[i] = malloc(kBlock);  // loads
    memset(blocks[i], 1, kBlock);
  }
}

static void drop(void) {
  for (int i = 0; i < kBlocks; ++i)
    if (i % kKeepEvery != 0) free(blocks[i]);
}

// The first write to a page is malloc's, which cuts the next block off.
static void use(void) {
  for (int i = 0; i < kChildBlocks; ++i) {
    child_blocks[i] = malloc(kBlock);  // uses
    memset(child_blocks[i], 2, kBlock);
  }
}

static long faults(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

int main(int count, char** arguments) {
  load();
  drop();
  if (count > 1 && strcmp(arguments[1], "trim") == 0) malloc_trim(0);
  const pid_t child = fork();
  if (child == 0) {
    const long before = faults();
    use();
    printf("faults: %ld bytes\n", (faults() - before) * getpagesize());
    return 0;
  }
  int status = 1;
  waitpid(child, &status, 0);
  printf("the child used %d KiB\n", kChildBlocks * (kBlock / 8) / 128);
  return status != 0;
}
