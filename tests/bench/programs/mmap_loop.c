// Maps 256 KiB, touches all of it, unmaps: 15,000 times.
#include <stddef.h>
#include <sys/mman.h>

int main(void) {
  for (int round = 0; round < 15 * 1000; ++round) {
    char* memory = mmap(NULL, 256 * 1024, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 1;
    for (size_t at = 0; at < 256 * 1024; at += 4096) memory[at] = 1;
    munmap(memory, 256 * 1024);
  }
}
