// The pictures of a process's address space, in the JSON report of schema 2.
#pragma once

#include <nlohmann/json.hpp>

#include "report/render/stack_json.h"
#include "report/view/view.h"

namespace whyrss {

// Those within its interval. Lists of runs and ages are columns of equal length; stacks are numbers of the table.
nlohmann::ordered_json pages_json(StackJson& stacks, const ProcessView& process);

}  // namespace whyrss
