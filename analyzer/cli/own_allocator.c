// Says which malloc a program has that the loader gave the libraries of LD_PRELOAD: family, version and library, one a
// line. For find_allocator (allocators.h), as whyrss itself may be linked without a loader.
// It must start wherever whyrss does: no start-up code of the C library that built it, and no name newer than
// glibc 2.17.
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAYBE __attribute__((weak))
extern int mi_version(void) MAYBE;
extern const char* tc_version(int* major, int* minor, const char** patch) MAYBE;
extern int mallctl(const char* name, void* old, size_t* old_size, void* new_value, size_t new_size) MAYBE;

// The file whose mapping holds `address`, "" if there is none. A line: "7f00-7f10 r-xp 00000000 fd:01 123    /path".
static void find_file(uintptr_t address, char* path, size_t size) {
  char line[8192];
  FILE* maps = fopen("/proc/self/maps", "re");
  path[0] = '\0';
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
    char* end = NULL;
    const uintptr_t first = strtoul(line, &end, 16);
    const uintptr_t past = *end == '-' ? strtoul(end + 1, &end, 16) : 0;
    const char* file = strchr(line, '/');
    if (address < first || address >= past || file == NULL) continue;
    snprintf(path, size, "%.*s", (int)strcspn(file, "\n"), file);
    break;
  }
  if (maps != NULL) fclose(maps);
}

static void print_mimalloc(const char* path) {
  const int number = mi_version();  // 209 is 2.0.9; other schemes are shown as they are
  if (number >= 1000)
    printf("mimalloc\n%d\n%s\n", number, path);
  else
    printf("mimalloc\n%d.%d.%d\n%s\n", number / 100, number / 10 % 10, number % 10, path);
}

static void print_jemalloc(const char* path) {
  const char* version = NULL;  // 5.3.0-0-g54eaed1d...
  size_t size = sizeof version;
  if (mallctl("version", (void*)&version, &size, NULL, 0) != 0 || version == NULL) version = "";
  printf("jemalloc\n%.*s\n%s\n", (int)strcspn(version, "-"), version, path);
}

static void describe(void) {
  char path[8192];
  find_file((uintptr_t)&malloc, path, sizeof path);
  const char* name = strrchr(path, '/');
  name = name != NULL ? name + 1 : "";
  if (strncmp(name, "libc.so", 7) == 0 || strncmp(name, "libc-2", 6) == 0)
    printf("glibc\n%s\n\n", gnu_get_libc_version());
  else if (&mi_version != NULL)
    print_mimalloc(path);
  else if (&tc_version != NULL)
    printf("tcmalloc\n%s\n%s\n", tc_version(NULL, NULL, NULL), path);
  else if (&mallctl != NULL)
    print_jemalloc(path);
  else
    printf("other\n\n%s\n", path);
}

// The loader has initialized the C library by then.
__attribute__((used, noreturn)) static void begin(void) {
  describe();
  exit(fflush(stdout) == 0 ? 0 : 1);
}

__asm__(
    ".globl _start\n"
    ".type _start, @function\n"
    "_start:\n"
    "  xorl %ebp, %ebp\n"
    "  andq $-16, %rsp\n"
    "  call begin\n"
    "  hlt\n");
