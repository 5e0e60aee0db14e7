/* throw_host COUNT [PLUGIN]: a C program that runs throw_work.cc, linked with it or opened as a plugin. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

extern int throw_many(int count) __attribute__((weak));
extern int use_unwinder(void) __attribute__((weak));

int main(int argument_count, char** arguments) {
  int (*run)(int) = throw_many;
  int (*use)(void) = use_unwinder;
  if (argument_count > 2) {
    void* plugin = dlopen(arguments[2], RTLD_NOW | RTLD_LOCAL);
    if (plugin == NULL) return fprintf(stderr, "%s\n", dlerror()), 3;
    run = (int (*)(int))dlsym(plugin, "throw_many");
    use = (int (*)(void))dlsym(plugin, "use_unwinder");
  }
  if (argument_count < 2 || run == NULL || use == NULL) return 4;
  int count = atoi(arguments[1]);
  if (run(count) != count * 11) return 5;
  return use();
}
