#include "cli/complain.h"

#include <cstdio>

#include "report/format.h"

namespace whyrss {

int complain(const std::string& text, int status) {
  std::fflush(stdout);  // what was seen comes before what could not be done
  std::fprintf(stderr, "whyrss: %s\n", printable(text).c_str());
  return status;
}

}  // namespace whyrss
