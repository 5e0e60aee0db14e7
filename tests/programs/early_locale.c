// Linked into early_host: its constructor runs before a preloaded library's, and the first malloc of the
// process is the one that newlocale() makes while it holds libc's locale lock.
#include <locale.h>

locale_t early_locale;

__attribute__((constructor)) static void make_locale(void) {
  early_locale = newlocale(LC_ALL_MASK, "POSIX", (locale_t)0);
}
