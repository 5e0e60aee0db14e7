// How a verb says why it ends.
#pragma once

#include <string>

namespace whyrss {

// One line on stderr, after what stdout holds by then; returns `status` for the caller to end with.
int complain(const std::string& text, int status = 1);

}  // namespace whyrss
