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
  double bytes_per_s = 0;  // by which it still grows at the end; 0: it does not
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
// (symbolize/). Problems, kills and limits first, then what still grows at the end, fastest first, then the largest;
// what libraries and imports cost and how shared memory counts come last. Equal ones in the order of the view's
// processes.
std::vector<Verdict> find_verdicts(const View& view);

// One of those that come last: it alone makes no process worth a block of its own.
bool is_remark(const Verdict& verdict);

}  // namespace whyrss
