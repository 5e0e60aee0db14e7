// Where a verb's answer goes: stdout or a file.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace whyrss {

using TextSink = std::function<void(std::string_view)>;

// What `render` hands to the sink, in pieces, or `text`: to the file `output`, or to stdout for "" and "-". 0, or 1
// after a line on stderr; `what` names it there.
int write_output(const std::function<void(const TextSink&)>& render, const std::string& output,
                 const std::string& what);
int write_output(const std::string& text, const std::string& output, const std::string& what);

}  // namespace whyrss
