#include "job/expected.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "job/node_list.h"
#include "support/text.h"

namespace whyrss {
namespace {

std::string without_domain(const std::string& name) { return name.substr(0, name.find('.')); }

}  // namespace

ExpectedNodes expected_nodes(const PartIndex& index) {
  std::set<std::string> kernels, names, wanted;
  for (const PartEntry& entry : index.entries) {
    kernels.insert(entry.boot_id.empty() ? "host " + entry.host : entry.boot_id);
    for (const std::string& name : {entry.node, entry.host}) {
      names.insert(name);
      names.insert(without_domain(name));
    }
  }
  ExpectedNodes nodes;
  nodes.present = kernels.size();
  for (const std::string& list : index.node_lists) {
    if (const auto count = parse_number<std::size_t>(list)) {
      nodes.count = std::max(nodes.count.value_or(0), *count);
    } else if (const auto expanded = expand_nodes(list)) {
      wanted.insert(expanded->begin(), expanded->end());
    }
  }
  if (!wanted.empty()) nodes.count = std::max(nodes.count.value_or(0), wanted.size());
  for (const std::string& name : wanted)
    if (!names.contains(name) && !names.contains(without_domain(name))) nodes.missing.push_back(name);
  return nodes;
}

std::string missing_text(const ExpectedNodes& nodes) {
  constexpr std::size_t kMostNamed = 8;
  if (!nodes.count) return {};
  const std::size_t fewer = *nodes.count > nodes.present ? *nodes.count - nodes.present : 0;
  const std::size_t missing = std::max(nodes.missing.size(), nodes.missing.empty() ? fewer : 0);
  if (missing == 0) return {};
  std::string text = fmt::format("{} of {} nodes {} missing", missing, *nodes.count, missing == 1 ? "is" : "are");
  if (nodes.missing.empty()) return text;
  std::vector<std::string> named(nodes.missing.begin(),
                                 nodes.missing.begin() + static_cast<std::ptrdiff_t>(std::min(missing, kMostNamed)));
  text += ": " + join(named, ", ");
  return missing > kMostNamed ? fmt::format("{} and {} more", text, missing - kMostNamed) : text;
}

Status check_node_list(const std::string& list) {
  if (parse_number<std::size_t>(list)) return Done{};
  const auto names = expand_nodes(list);
  if (!names) return Error{names.error()};
  if (names->empty()) return Error{"an empty list of nodes"};
  return Done{};
}

}  // namespace whyrss
