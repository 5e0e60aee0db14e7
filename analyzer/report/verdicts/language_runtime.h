// Programs that an interpreter or a virtual machine runs: the recorded lines are its own, not those of the program.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "report/verdicts/verdict.h"
#include "report/view/view.h"

namespace whyrss {

struct LanguageRuntime {
  std::string_view name;      // "The Java virtual machine"
  std::string_view language;  // "Java"
  std::string_view advice;    // a sentence: what shows the program's own objects
};

// The one whose code asked for more than half of `whole` (growths of `sites`); null: none. CPython is none of them: its
// lines are recorded.
const LanguageRuntime* runtime_behind(const StackTable& stacks, const std::vector<SiteView>& sites, std::int64_t whole);

const LanguageRuntime& go_runtime();

// " Perl's interpreter asked for it: which line of Perl it was for is not recorded."
std::string runtime_sentence(const LanguageRuntime& runtime);

// Where a runtime is behind `whole`, says so in the verdict; its advice replaces the one for C, after `condition`.
void explain_runtime(Verdict& verdict, const StackTable& stacks, const std::vector<SiteView>& sites, std::int64_t whole,
                     std::string_view condition = {});

}  // namespace whyrss
