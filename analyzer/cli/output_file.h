// Where a verb's answer goes: stdout or a file.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "support/result.h"

namespace whyrss {

using TextSink = std::function<void(std::string_view)>;

// What `render` hands to the sink, in pieces, or `text`: to the file `output`, or to stdout for "" and "-". 0, or 1
// after a line on stderr; `what` names it there.
int write_output(const std::function<void(const TextSink&)>& render, const std::string& output,
                 const std::string& what);
// The same where rendering may fail: then a file is not made or changed, and the reason is said.
int write_checked_output(const std::function<Status(const TextSink&)>& render, const std::string& output,
                         const std::string& what);
int write_output(const std::string& text, const std::string& output, const std::string& what);

}  // namespace whyrss
