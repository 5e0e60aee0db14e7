/* A C program that loads a C++ plugin: c_host PLUGIN */
#include <dlfcn.h>

int main(int argc, char** argv) {
  void* plugin = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : 0;
  int (*run)(void) = 0;
  if (plugin == 0) return 2;
  *(void**)&run = dlsym(plugin, "run_plugin");
  if (run == 0) return 3;
  const int status = run();
  return dlclose(plugin) == 0 ? status : 4;
}
