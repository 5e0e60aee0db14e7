#include "job/node_list.h"

#include <fmt/format.h>

#include <optional>

#include "support/text.h"

namespace whyrss {
namespace {

// The list up to the next comma outside of brackets, cut off its front.
std::string_view take_item(std::string_view& rest) {
  std::size_t at = 0;
  for (bool inside = false; at < rest.size() && (inside || rest[at] != ','); ++at)
    if (rest[at] == '[' || rest[at] == ']') inside = rest[at] == '[';
  const std::string_view item = rest.substr(0, at);
  rest.remove_prefix(std::min(at + 1, rest.size()));
  return item;
}

// "001-003" to 001, 002, 003.
bool expand_range(std::string_view range, std::vector<std::string>& numbers) {
  const std::size_t dash = range.find('-');
  const std::string_view first = range.substr(0, dash);
  const std::string_view last = dash == std::string_view::npos ? first : range.substr(dash + 1);
  const auto from = parse_number<std::uint64_t>(first), to = parse_number<std::uint64_t>(last);
  if (!from || !to || *to < *from || *to - *from >= kMostNodes) return false;
  for (std::uint64_t number = *from; number <= *to; ++number)
    numbers.push_back(fmt::format("{:0{}}", number, first.size()));
  return true;
}

// One item, brackets in any number of places. False where it is none.
bool expand_item(std::string_view item, std::vector<std::string>& names) {
  std::vector<std::string> heads{""};
  while (!item.empty()) {
    const std::size_t open = item.find('[');
    const std::string_view fixed = item.substr(0, open);
    if (fixed.find(']') != std::string_view::npos) return false;
    for (std::string& head : heads) head += fixed;
    if (open == std::string_view::npos) break;
    const std::size_t close = item.find(']', open);
    if (close == std::string_view::npos) return false;
    std::vector<std::string> numbers;
    std::string_view ranges = item.substr(open + 1, close - open - 1);
    do {
      if (!expand_range(take_until(ranges, ','), numbers)) return false;
    } while (!ranges.empty());
    if (heads.size() * numbers.size() > kMostNodes) return false;
    std::vector<std::string> longer;
    for (const std::string& head : heads)
      for (const std::string& number : numbers) longer.push_back(head + number);
    heads = std::move(longer);
    item.remove_prefix(close + 1);
  }
  names.insert(names.end(), heads.begin(), heads.end());
  return names.size() <= kMostNodes;
}

}  // namespace

Result<std::vector<std::string>> expand_nodes(std::string_view list) {
  std::vector<std::string> names;
  std::string_view rest = list;
  while (!rest.empty()) {
    const std::string_view item = take_item(rest);
    if (item.empty() || !expand_item(item, names))
      return Error{fmt::format("'{}' is no list of nodes, such as node[001-576],login1", list)};
  }
  return names;
}

std::string ranges_text(const std::vector<std::int64_t>& numbers, std::size_t most_ranges) {
  std::string text;
  std::size_t ranges = 0;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    if (ranges++ == most_ranges) return text + ",...";
    if (!text.empty()) text += ',';
    text += end - i == 1 ? fmt::format("{}", numbers[i]) : fmt::format("{}-{}", numbers[i], numbers[end - 1]);
    i = end;
  }
  return text;
}

}  // namespace whyrss
