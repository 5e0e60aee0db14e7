// Names as the program's author wrote them: C++, and Rust in both its manglings.
#pragma once

#include <string>

namespace whyrss {

// `name` itself when it is not mangled, or not by one of these.
std::string demangled(const char* name);

}  // namespace whyrss
