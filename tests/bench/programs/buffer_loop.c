// buffer_loop COUNT: a buffer of 64 KiB that is used and freed, again and again.
#include <stdlib.h>

int main(int argument_count, char** arguments) {
  const long count = argument_count > 1 ? atol(arguments[1]) : 1000 * 1000;
  for (long i = 0; i < count; ++i) {
    char* buffer = malloc(64 * 1024);
    *(volatile char*)buffer = 1;
    free(buffer);
  }
}
