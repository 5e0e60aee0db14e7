// Reads a file of 64 MiB that is in memory 100 times, `BYTES` at a time, into one buffer.   read_loop BYTES
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int word_count, char** words) {
  const size_t file_bytes = 64 << 20;
  const size_t size = word_count > 1 ? strtoul(words[1], NULL, 0) : 65536;
  const int file = memfd_create("data", 0);
  char* buffer = malloc(file_bytes);
  if (buffer == NULL || size == 0) return 1;
  memset(buffer, 1, file_bytes);
  if (write(file, buffer, file_bytes) != (ssize_t)file_bytes) return 1;
  for (int round = 0; round < 100; ++round) {
    lseek(file, 0, SEEK_SET);
    for (size_t at = 0; at + size <= file_bytes; at += size)
      if (read(file, buffer, size) != (ssize_t)size) return 1;
  }
  return 0;
}
