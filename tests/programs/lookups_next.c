// One of the libraries of lookups: -DNAME="...".
#define _GNU_SOURCE
#include <dlfcn.h>

const char* whose(void) { return NAME; }
void* look_up_next(const char* name) { return dlsym(RTLD_NEXT, name); }
