// The figures of a difference as JSON, of recordings and of jobs.
#pragma once

#include <nlohmann/json.hpp>

#include "report/diff/diff.h"

namespace whyrss {

nlohmann::ordered_json figure_json(const DiffFigure& figure);
// The same beside what `json` has.
nlohmann::ordered_json with_figure(nlohmann::ordered_json json, const DiffFigure& figure);
nlohmann::ordered_json line_json(const DiffLine& line);

}  // namespace whyrss
