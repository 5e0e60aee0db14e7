// What a verb leaves behind when the user interrupts it (Ctrl-C, a closed terminal): nothing half done.
#pragma once

#include <string>

namespace whyrss {

// From now on SIGINT, SIGTERM and SIGHUP remove this file before they end the process as they would by themselves; ""
// names none. Signals that are ignored stay so. One file at a time, of a path that is no longer than PATH_MAX.
void remove_when_interrupted(const std::string& path);

// The same for the line that stands on the terminal behind stderr.
void clear_line_when_interrupted(bool is_there);

}  // namespace whyrss
