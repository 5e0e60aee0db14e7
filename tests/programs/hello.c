/* Prints one line; built as 32-bit, musl, static and plain program, to be run by a traced one. */
#include <stdio.h>
#include <stdlib.h>

int main(void) {
  const char* preload = getenv("LD_PRELOAD");
  printf("hello, LD_PRELOAD=%s\n", preload != NULL ? preload : "(none)");
  return 0;
}
