// Names as the program's author wrote them: C++, Rust in both its manglings, Python compiled by Cython or mypyc.
#pragma once

#include <string>

namespace whyrss {

// `name` itself when it is not mangled, or not by one of these.
std::string demangled(const char* name);

}  // namespace whyrss
