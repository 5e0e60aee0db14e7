#include "replay/pictured_walks.h"

#include <algorithm>
#include <set>

namespace whyrss {
namespace {

constexpr std::size_t kFewestEntries = 500;

std::vector<std::size_t> chosen_walks(const std::vector<WalkMoment>& walks, std::size_t most) {
  if (walks.empty() || most == 0) return {};
  const auto largest_of = [&](std::size_t first, std::size_t last) {
    const auto begin = walks.begin() + static_cast<std::ptrdiff_t>(first);
    return first +
           static_cast<std::size_t>(std::ranges::max_element(begin, walks.begin() + static_cast<std::ptrdiff_t>(last),
                                                             {}, &WalkMoment::rss_pages) -
                                    begin);
  };
  std::set<std::size_t> chosen{walks.size() - 1};
  if (most > 1) chosen.insert(largest_of(0, walks.size()));
  const std::size_t parts = most - chosen.size();
  const std::uint64_t begin_ns = walks.front().end_ns, span_ns = walks.back().end_ns - begin_ns;
  std::size_t first = 0;
  for (std::size_t part = 1; part <= parts; ++part) {
    const auto until_ns = begin_ns + static_cast<std::uint64_t>(static_cast<double>(span_ns) *
                                                                static_cast<double>(part) / static_cast<double>(parts));
    std::size_t last = first;
    while (last < walks.size() && (part == parts || walks[last].end_ns <= until_ns)) ++last;
    if (last > first) chosen.insert(largest_of(first, last));
    first = last;
  }
  return {chosen.begin(), chosen.end()};
}

std::uint64_t most_pages(const std::vector<WalkMoment>& walks) {
  std::uint64_t most = 0;
  for (const WalkMoment& walk : walks) most = std::max(most, walk.rss_pages);
  return most;
}

std::size_t share_of(std::size_t all, std::uint64_t pages, std::uint64_t all_pages) {
  return static_cast<std::size_t>(static_cast<double>(all) * static_cast<double>(pages) /
                                  static_cast<double>(std::max<std::uint64_t>(all_pages, 1)));
}

}  // namespace

std::vector<std::vector<PicturedWalk>> pictured_walks(const std::vector<std::vector<WalkMoment>>& of_processes,
                                                      const PictureBudget& budget) {
  std::vector<std::vector<PicturedWalk>> pictured(of_processes.size());
  if (budget.of_each == 0) return pictured;
  std::uint64_t all_pages = 0, all_pictured = 0;
  for (const std::vector<WalkMoment>& walks : of_processes) all_pages += most_pages(walks);
  for (std::size_t i = 0; i < of_processes.size(); ++i) {
    const std::size_t share = share_of(budget.pictures, most_pages(of_processes[i]), all_pages);
    for (const std::size_t number : chosen_walks(of_processes[i], std::clamp<std::size_t>(share, 1, budget.of_each))) {
      pictured[i].push_back({number, 0});
      all_pictured += of_processes[i][number].rss_pages;
    }
  }
  for (std::size_t i = 0; i < of_processes.size(); ++i)
    for (PicturedWalk& walk : pictured[i])
      walk.most_entries =
          std::max(share_of(budget.entries, of_processes[i][walk.number].rss_pages, all_pictured), kFewestEntries);
  return pictured;
}

}  // namespace whyrss
