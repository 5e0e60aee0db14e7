#include "cli/complain.h"

#include <cstdio>

#include "report/wording/format.h"
#include "support/last_words.h"

namespace whyrss {

int complain(const std::string& text, int status) {
  std::fflush(stdout);  // results come before what could not be done
  say(printable(text));
  return status;
}

}  // namespace whyrss
