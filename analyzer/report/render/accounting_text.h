// What other tools would have shown of the recorded run, beside what was really in use.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "report/view/view.h"
#include "report/wording/table.h"

namespace whyrss {

// "What other tools show at 12.3 s, MiB"; "" where no moment is known.
std::string accounting_title(const View& view);
// By tool: its figure for all processes together.
Table accounting_table(const View& view);
// By process: the columns of top, psutil and smem. At most `top`, the rest in one row.
Table accounting_process_table(const View& view, std::size_t top);

nlohmann::ordered_json accounting_json(const View& view);

}  // namespace whyrss
