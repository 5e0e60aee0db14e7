// Programs that an interpreter or a virtual machine runs: the recorded lines are its own, not those of the program.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/language_runtime.h"
#include "model/stack_table.h"
#include "report/verdicts/verdict.h"
#include "report/view/view.h"

namespace whyrss {

// The one whose code asked for more than half of `whole` (growths of `sites`); null: none.
const LanguageRuntime* runtime_behind(const StackTable& stacks, const std::vector<SiteView>& sites, std::int64_t whole);

// " Perl's interpreter asked for it: which line of Perl it was for is not recorded."
std::string runtime_sentence(const LanguageRuntime& runtime);

// Where a runtime is behind `whole`, says so in the verdict; its advice replaces the one for C, after `condition`.
void explain_runtime(Verdict& verdict, const StackTable& stacks, const std::vector<SiteView>& sites, std::int64_t whole,
                     std::string_view condition = {});

}  // namespace whyrss
