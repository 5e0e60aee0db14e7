// The rules about mapped files: file-cache-growth, pages that the kernel takes back when it needs memory; library-code,
// those of libraries and of the executable;
// file-dirty-growth, those of them that it has to write to disk first.
#pragma once

#include <vector>

#include "report/verdicts/verdict.h"

namespace whyrss {

void library_code(const View& view, std::vector<Verdict>& verdicts);
void file_cache_growth(const View& view, std::vector<Verdict>& verdicts);
void file_dirty_growth(const View& view, std::vector<Verdict>& verdicts);

}  // namespace whyrss
