// What the growth of a process is made of, in the order of the sentences about it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "report/view/view.h"

namespace whyrss {

// What imports made of a cause (can_be_of_imports).
std::int64_t import_growth(const StackTable& stacks, const CauseView& cause);
// The cause without it.
CauseView without_imports(const StackTable& stacks, const CauseView& cause);

// Whether a mapped file is a library or the executable.
bool is_code_file(const ProcessAccount& process, std::string_view path);

// Copies of file pages without those of libraries, where these are few and what is left is worth naming. Another cause
// as it is.
CauseView without_library_data(const ProcessAccount& process, const CauseView& cause);

struct GrowthPart {
  std::string_view name;
  std::int64_t bytes = 0;
};
// They sum to the growth of RSS: largest first, what libraries and imports cost last.
std::vector<GrowthPart> growth_parts(const StackTable& stacks, const ProcessView& process);

// " = 531 live + 72 library code + 58 imports" in the unit in which size_text() shows the growth, to which the parts
// sum; small ones are "other". "" where RSS grew by little.
std::string growth_parts_text(const StackTable& stacks, const ProcessView& process);

}  // namespace whyrss
