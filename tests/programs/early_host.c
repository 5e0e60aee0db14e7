// early_host: takes the locale lock again. It hangs when the lock was left in disorder; then the alarm ends it.
#include <dlfcn.h>
#include <locale.h>
#include <stdio.h>
#include <unistd.h>

extern locale_t early_locale;

int main(void) {
  alarm(20);
  if (early_locale == (locale_t)0 || setlocale(LC_ALL, "") == NULL || setlocale(LC_ALL, "C") == NULL) return 1;
  const char* error = dlerror();  // none of ours is left for the program
  if (error != NULL) puts(error);
  return error == NULL ? 0 : 2;
}
