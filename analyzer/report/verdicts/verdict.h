// The answers: what grew, whether it matters, what to do. Each comes from one rule over a View and is
// shown alike by every format. Sizes are bytes.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/view/view.h"

namespace whyrss {

enum class Severity { ok, info, warning, problem };
std::string_view slug(Severity severity);

struct Verdict {
  std::string id{};  // stable
  Severity severity = Severity::info;
  std::optional<int> pid{};
  std::int64_t bytes = 0;  // the figure of the headline
  std::string headline{}, why{}, advice{};
  std::vector<int> covered_pids{};  // processes that the headline speaks of besides `pid`
  nlohmann::ordered_json evidence = nlohmann::ordered_json::object();
};

// A rule appends what it finds. Rules read the view only, in any order.
struct VerdictRule {
  std::string_view id;
  void (*apply)(const View& view, std::vector<Verdict>& verdicts);
};
const std::vector<VerdictRule>& verdict_rules();

// All rules in order, then `steady` where none of them found anything. Native frames must have their names already
// (symbolize/). What needs a decision first: problems, warnings, info, ok; of one kind in the order of the view's
// processes, largest first within one.
std::vector<Verdict> find_verdicts(const View& view);

}  // namespace whyrss
