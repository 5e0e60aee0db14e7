// Where a verb's answer goes: stdout or a file.
#pragma once

#include <string>

namespace whyrss {

// To the file `output`, or to stdout for "" and "-". 0, or 1 after a line on stderr; `what` names it there.
int write_output(const std::string& text, const std::string& output, const std::string& what);

}  // namespace whyrss
