// lookups NAMES: what dlsym and dlvsym say, one line each: the library and the offset in it, or the text of dlerror.
// NAMES is a file of names, looked up on libc's handle; then special handles, from this program and from libraries.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char* whose(void);          // lookups_next.c, twice
void* look_up_next(const char*);  // its dlsym(RTLD_NEXT), which goes by who called

static void say(const char* how, const char* name, void* found) {
  const char* error = dlerror();
  Dl_info info;
  if (found == NULL || dladdr(found, &info) == 0) {
    printf("%s %s: %s\n", how, name, error != NULL ? error : "nothing");
    return;
  }
  const char* slash = strrchr(info.dli_fname, '/');
  printf("%s %s: %s+%#lx%s\n", how, name, slash != NULL ? slash + 1 : info.dli_fname,
         (unsigned long)((char*)found - (char*)info.dli_fbase), error != NULL ? error : "");
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  void* libc = dlopen("libc.so.6", RTLD_NOW);
  void* libm = dlopen("libm.so.6", RTLD_NOW);
  FILE* names = fopen(argv[1], "r");
  char name[256];
  while (names != NULL && fscanf(names, "%255s", name) == 1) {
    say("libc", name, dlsym(libc, name));
    say("versioned", name, dlvsym(libc, name, "GLIBC_2.2.5"));
  }
  say("libm", "cos", dlsym(libm, "cos"));
  say("libm", "no_such_name", dlsym(libm, "no_such_name"));
  say("libc", "no_such_name", dlsym(libc, "no_such_name"));
  say("version", "malloc", dlvsym(libc, "malloc", "NO_SUCH_VERSION"));
  say("default", "no_such_name", dlsym(RTLD_DEFAULT, "no_such_name"));
  say("default", "cos", dlsym(RTLD_DEFAULT, "cos"));
  say("default", "printf", dlvsym(RTLD_DEFAULT, "printf", "GLIBC_2.2.5"));
  say("next", "printf", dlsym(RTLD_NEXT, "printf"));
  say("next", "whose", dlsym(RTLD_NEXT, "whose"));
  say("next", "no_such_name", dlsym(RTLD_NEXT, "no_such_name"));
  say("next of the library", "whose", look_up_next("whose"));
  say("next of the library", "no_such_name", look_up_next("no_such_name"));
  printf("%s, then %s\n", whose(), ((const char* (*)(void))look_up_next("whose"))());
  // One function, whichever way it is found; what came by one can be released by another.
  printf("one malloc: %d\n", dlsym(libc, "malloc") == (void*)malloc && dlsym(NULL, "free") == dlsym(libc, "free"));
  void* block = ((void* (*)(size_t))dlsym(libc, "malloc"))(100);
  free(block);
  ((void (*)(void*))dlsym(libc, "free"))(strdup("text"));
  void* apart = dlmopen(LM_ID_NEWLM, "libc.so.6", RTLD_NOW);
  say("apart", "malloc", apart != NULL ? dlsym(apart, "malloc") : NULL);
  return 0;
}
