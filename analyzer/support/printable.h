// Text from elsewhere (recordings, /proc) as it may be printed on a terminal, or written for other tools.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace whyrss {

// Control characters, what is no UTF-8, and invisible characters, as direction marks, become '?'.
std::string printable(std::string_view text);

// The same between the quotes of a Prometheus label.
std::string label_value(std::string_view text);

// What a command is called in a series of figures: "train.py" of `python3 train.py`, else the program's own name; "?"
// where there is none. `program`: the command without its arguments, for one whose command line is not known.
std::string program_name(const std::vector<std::string>& command, const std::string& program);

}  // namespace whyrss
