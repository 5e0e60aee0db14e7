// `whyrss html REC`, `whyrss html JOB`: the report as a page for a browser.
#pragma once

#include <string>

namespace whyrss {

struct HtmlOptions {
  std::string recording;
  std::string output;  // -o; empty: the recording's name with .html, in the current directory; "-": stdout
};

// 0, or 1: unreadable recording or output.
int run_html(const HtmlOptions& options);

}  // namespace whyrss
