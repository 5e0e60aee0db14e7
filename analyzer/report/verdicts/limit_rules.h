// Verdicts on memory limits.
#pragma once

#include <vector>

#include "report/verdicts/verdict.h"

namespace whyrss {

// A limit that was reached, and held by taking file cache back.
void limit_reclaimed(const View& view, std::vector<Verdict>& verdicts);
// So little of the limit was left for files that they were read again and again.
void limit_rereading(const View& view, std::vector<Verdict>& verdicts);
// Nearly all of the limit was held by what cannot be taken back.
void near_limit(const View& view, std::vector<Verdict>& verdicts);

// Whether the kernel killed a process of the recording for lack of memory, as far as is known.
bool has_oom_kill(const RecordingInfo& recording);

}  // namespace whyrss
