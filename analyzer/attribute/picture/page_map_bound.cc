#include "attribute/picture/page_map_bound.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <queue>
#include <utility>

namespace whyrss {
namespace {

// What `parts` have in common by `key`, and how many pages they are: of the most.
template <typename Part, typename Key>
std::pair<Part, std::uint64_t> most_of(std::vector<Part>& parts, Key key) {
  std::ranges::sort(parts, {}, key);
  std::pair<Part, std::uint64_t> most{};
  for (auto first = parts.begin(); first != parts.end();) {
    std::uint64_t pages = 0;
    auto last = first;
    for (; last != parts.end() && key(*last) == key(*first); ++last) pages += last->pages;
    if (pages > most.second) most = {*first, pages};
    first = last;
  }
  return most;
}

class RunCell {
 public:
  void add(const PageMapRun& run, std::uint64_t pages) {
    parts_.push_back(run);
    parts_.back().pages = pages;
    pages_ += pages;
  }
  // What most of its pages are. Empties it.
  PageMapRun close(std::uint64_t start, std::uint64_t end) {
    const auto [cause, of_cause] = most_of(parts_, [](const PageMapRun& part) { return part.cause; });
    std::erase_if(parts_, [kept = cause.cause](const PageMapRun& part) { return part.cause != kept; });
    std::uint64_t sixteenths = of_cause / 2;
    for (const PageMapRun& part : parts_) sixteenths += part.pages * part.live_sixteenths;
    // Where blocks are sampled, who allocated on most pages is not known.
    std::erase_if(parts_, [](const PageMapRun& part) { return part.stack == kEmptyStack; });
    PageMapRun run = most_of(parts_, [](const PageMapRun& part) { return part.stack; }).first;
    run.cause = cause.cause;
    run.live_sixteenths = static_cast<std::uint8_t>(std::max<std::uint64_t>(sixteenths / of_cause, 1));
    run.start = start;
    run.end = end;
    run.pages = std::exchange(pages_, 0);
    parts_.clear();
    return run;
  }

 private:
  std::vector<PageMapRun> parts_;
  std::uint64_t pages_ = 0;
};

class AgeCell {
 public:
  void add(const PageAge& age, std::uint64_t pages) { parts_.push_back({age.since_s, pages}); }
  PageAge close(std::uint64_t start, std::uint64_t end) {
    const double since_s = most_of(parts_, [](const Part& part) { return part.since_s; }).first.since_s;
    parts_.clear();
    return {start, end, since_s};
  }

 private:
  struct Part {
    double since_s = 0;
    std::uint64_t pages = 0;
  };
  std::vector<Part> parts_;
};

// `fine`, of single pages, in larger cells of what lies between `start` and `end`.
template <typename Cell, typename Run>
std::vector<Run> in_cells(const std::vector<Run>& fine, std::uint64_t cell_bytes, const PageMapMapping& within) {
  std::vector<Run> coarse;
  Cell open;
  std::optional<std::uint64_t> at_cell;
  const auto close = [&] {
    if (at_cell)
      append_joined(coarse, open.close(std::max(*at_cell, within.start), std::min(*at_cell + cell_bytes, within.end)));
  };
  for (const Run& run : fine)
    for (std::uint64_t at = run.start; at < run.end;) {
      const std::uint64_t cell = at & ~(cell_bytes - 1), until = std::min(run.end, cell + cell_bytes);
      if (at_cell != cell) close();
      at_cell = cell;
      open.add(run, (until - at) / kPictureCellBytes);
      at = until;
    }
  close();
  return coarse;
}

std::uint64_t pages_of(const PageMapMapping& mapping) {
  std::uint64_t sum = 0;
  for (const PageMapRun& run : mapping.runs) sum += run.pages;
  return sum;
}

void add_ages(PageMap& map, const std::vector<PageAge>& ages) {
  auto age = ages.begin();
  for (PageMapMapping& mapping : map.mappings) {
    while (age != ages.end() && age->end <= mapping.start) ++age;
    for (auto here = age; here != ages.end() && here->start < mapping.end; ++here)
      mapping.ages.push_back({std::max(here->start, mapping.start), std::min(here->end, mapping.end), here->since_s});
  }
}

void leave_out_smallest(PageMap& map, std::size_t entries, std::size_t most) {
  std::vector<std::pair<std::uint64_t, std::size_t>> by_pages;
  for (std::size_t i = 0; i < map.mappings.size(); ++i) by_pages.emplace_back(pages_of(map.mappings[i]), i);
  std::ranges::sort(by_pages);
  for (const auto& [pages, i] : by_pages) {
    if (entries <= most) break;
    PageMapMapping& mapping = map.mappings[i];
    entries -= mapping.runs.size() + mapping.ages.size();
    mapping.runs.clear();
    ++map.mappings_left_out;
    map.pages_left_out += pages;
  }
  std::erase_if(map.mappings, [](const PageMapMapping& mapping) { return mapping.runs.empty(); });
}

}  // namespace

void finish_picture(PageMap& map, const std::vector<PageAge>& ages, std::size_t most) {
  add_ages(map, ages);
  std::size_t entries = map.entries();
  if (entries <= most) return;
  const std::vector<PageMapMapping> fine = map.mappings;
  const auto entries_of = [&](std::size_t i) { return map.mappings[i].runs.size() + map.mappings[i].ages.size(); };
  std::priority_queue<std::pair<std::size_t, std::size_t>> by_entries;  // entries, and of which mapping
  for (std::size_t i = 0; i < fine.size(); ++i) by_entries.emplace(entries_of(i), i);
  while (entries > most && !by_entries.empty()) {
    const std::size_t i = by_entries.top().second;
    by_entries.pop();
    PageMapMapping& mapping = map.mappings[i];
    if (mapping.cell_bytes >= mapping.end - mapping.start) continue;  // one cell, or two
    entries -= entries_of(i);
    // Far too many are not halved again and again.
    mapping.cell_bytes *= std::max<std::uint64_t>(std::bit_floor(entries_of(i) / most / 2), 2);
    mapping.runs = in_cells<RunCell>(fine[i].runs, mapping.cell_bytes, mapping);
    mapping.ages = in_cells<AgeCell>(fine[i].ages, mapping.cell_bytes, mapping);
    entries += entries_of(i);
    by_entries.emplace(entries_of(i), i);
  }
  if (entries > most) leave_out_smallest(map, entries, most);
}

}  // namespace whyrss
