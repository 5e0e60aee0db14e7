// Faults on 64 MiB page by page and gives them back, 40 times: 655,360 page faults and little else.
#include <stddef.h>
#include <sys/mman.h>

int main(void) {
  const size_t size = 64 << 20;
  char* memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  madvise(memory, size, MADV_NOHUGEPAGE);
  for (int round = 0; round < 40; ++round) {
    for (size_t at = 0; at < size; at += 4096) memory[at] = 1;
    madvise(memory, size, MADV_DONTNEED);
  }
}
