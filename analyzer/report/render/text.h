// Reports for people. Plain UTF-8 lines of a bounded width; colour only when asked for.
#pragma once

#include <string>
#include <vector>

#include "report/render/text_style.h"
#include "report/verdicts/verdict.h"
#include "report/view/view.h"

namespace whyrss {

// The answer: one block per process that matters, its verdicts below. What `record` prints at the end.
std::string render_short(const View& view, const std::vector<Verdict>& verdicts, const TextStyle& style);

// What to show while the program runs: the answer so far, causes, lines, memory over time. At most `rows` lines, of
// which each part has its share; 0: as many as there are.
std::string render_live(const View& view, const std::vector<Verdict>& verdicts, const TextStyle& style,
                        std::size_t rows = 0);

// The answer, then the evidence: causes, lines, processes, what was lost, what is not known.
std::string render_text(const View& view, const std::vector<Verdict>& verdicts, const TextStyle& style);

}  // namespace whyrss
