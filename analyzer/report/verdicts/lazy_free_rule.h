// Pages given up with MADV_FREE: resident, and yet the kernel takes them back before it kills anybody.
#pragma once

#include <cstdint>
#include <vector>

#include "report/verdicts/verdict.h"

namespace whyrss {

// Less than this is not worth a word where other memory is reported.
inline constexpr std::int64_t kNamedLazyBytes = 1024 * 1024;

// Of all processes that live at a time, by their walks around it: at least so much. What relatives share counts once.
std::int64_t lazy_free_at(const RecordingAccount& recording, double time_s);

// The rule lazy-free-growth.
void lazy_free_growth(const View& view, std::vector<Verdict>& verdicts);

}  // namespace whyrss
