// The evidence of a report: which parts stand below the answer, and in which order. Text and Markdown show this one
// list.
#pragma once

#include <string>
#include <vector>

#include "report/render/process_text.h"
#include "report/render/text_style.h"
#include "report/view/view.h"
#include "report/wording/table.h"

namespace whyrss {

struct EvidencePart {
  std::string title;
  std::vector<Table> tables{};
  std::vector<std::string> lines{};  // sentences, or a call tree
  bool is_tree = false;              // its lines are indented by their depth
};

// Parts of which there is nothing to say are left out. `sections`: of the answer.
std::vector<EvidencePart> evidence_parts(const View& view, const std::vector<ProcessSection>& sections,
                                         const TextStyle& style);

}  // namespace whyrss
