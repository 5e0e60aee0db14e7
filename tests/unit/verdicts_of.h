// What the rules say of a recording, for the tests of verdicts.
#pragma once

#include <string>
#include <vector>

#include "report/verdicts/verdict.h"
#include "report/view/build_view.h"

namespace whyrss {

inline std::vector<Verdict> verdicts_of(const RecordingAccount& recording) {
  return find_verdicts(build_view(recording, whole_life(recording)));
}

// A line for each: id, severity, headline.
inline std::string headlines(const RecordingAccount& recording) {
  std::string text;
  for (const Verdict& verdict : verdicts_of(recording))
    text += verdict.id + " " + std::string(slug(verdict.severity)) + ": " + verdict.headline + "\n";
  return text;
}

}  // namespace whyrss
