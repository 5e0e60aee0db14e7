// Forks children that end at once, one after the other: argv[1] of them.
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char** argv) {
  for (long left = argc > 1 ? atol(argv[1]) : 400; left > 0; --left) {
    const pid_t child = fork();
    if (child < 0) return 1;
    if (child == 0) _exit(0);
    waitpid(child, NULL, 0);
  }
  return 0;
}
