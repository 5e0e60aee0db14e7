#include "job/job_diff.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "job/group_key.h"
#include "report/diff/diff_lines.h"
#include "report/view/blame.h"
#include "support/text.h"

namespace whyrss {
namespace {

template <typename T, typename Change>
void largest_change_first(std::vector<T>& entries, const Change& change) {
  std::ranges::stable_sort(entries, std::ranges::greater{}, [&](const T& entry) { return std::abs(change(entry)); });
}

DiffFigure between(std::int64_t a, std::int64_t b) { return {.a = a, .b = b}; }

// "cache.py:11 in load" of /home/u/cache.py: load, and 11.
struct NamedLine {
  std::string function;
  int number = 0;
};
NamedLine named(const JobLine& line) {
  std::string_view rest = line.text;
  const std::string name = base_name(line.file) + ":";
  if (line.file.empty() || !rest.starts_with(name)) return {line.text};
  rest.remove_prefix(name.size());
  const std::size_t digits = std::min(rest.find(" in "), rest.size());
  const auto number = parse_number(rest.substr(0, digits));
  if (!number || *number <= 0 || *number > 1'000'000'000) return {line.text};
  rest.remove_prefix(digits);
  if (rest.starts_with(" in ")) rest.remove_prefix(4);
  return {std::string(rest), static_cast<int>(*number)};
}

LinePlace place_of(const GroupLine& line, const NamedLine& name) {
  if (line.cause == Cause::whyrss) return {.cause = line.cause, .function = {}, .file = {}};
  if (line.line.text.empty()) return {.cause = line.cause, .function = {}, .file = line.line.mapping};
  return {.cause = line.cause, .function = name.function, .file = line.line.file};
}

std::string shown(const JobLine& line, Cause cause) {
  if (cause == Cause::whyrss) return {};
  return line.text.empty() ? base_name(line.mapping) : line.text;
}

struct GroupLines {
  LinePlaces places;
  std::map<Cause, const GroupCause*> causes;
};

// A line that maps several files is one of each in a part.
GroupLines lines_of(const JobGroup* group) {
  GroupLines lines;
  if (group == nullptr) return lines;
  for (const GroupCause& cause : group->causes) lines.causes.emplace(cause.cause, &cause);
  for (const GroupLine& line : group->lines) {
    const NamedLine name = named(line.line);
    LineSum& sum = lines.places[place_of(line, name)][name.number];
    sum.shown = shown(line.line, line.cause);
    sum.bytes += line.sum;
    sum.variance += line.variance;
    sum.more = std::min(sum.more + line.error, lines.causes.at(line.cause)->unlisted);
  }
  return lines;
}

class Differ {
 public:
  Differ(const JobView& a, const JobView& b) { diff_.a = &a, diff_.b = &b; }

  JobDiff take() {
    add_groups();
    add_causes();
    add_nodes();
    add_outliers();
    return std::move(diff_);
  }

 private:
  void add_groups() {
    std::map<GroupKey, GroupDiff> groups;
    for (const JobGroup& group : diff_.a->groups) groups[key_of(group)].a = &group;
    for (const JobGroup& group : diff_.b->groups) groups[key_of(group)].b = &group;
    for (auto& [key, group] : groups) {
      const Spread a = group.a != nullptr ? group.a->rss_peak : Spread{};
      const Spread b = group.b != nullptr ? group.b->rss_peak : Spread{};
      group.sum = between(a.sum, b.sum);
      group.median = between(a.median, b.median);
      group.p95 = between(a.p95, b.p95);
      group.max = between(a.max, b.max);
      diff_.rss.a += a.sum;
      diff_.rss.b += b.sum;
      diff_.groups.push_back(group);
    }
    largest_change_first(diff_.groups, [](const GroupDiff& group) { return group.sum.change(); });
    for (std::size_t i = 0; i < diff_.groups.size(); ++i) add_lines(i);
    largest_change_first(diff_.lines, [](const JobLineDiff& line) { return line.line.figure.change(); });
  }

  void add_lines(std::size_t number) {
    const GroupDiff& group = diff_.groups[number];
    const GroupLines a = lines_of(group.a), b = lines_of(group.b);
    for (DiffLine& line : pair_places(a.places, b.places)) {
      DiffFigure& figure = line.figure;
      if (figure.a == 0 && figure.b == 0) continue;
      // Where no process lists it, each may have as much as the largest that it does not list.
      const auto unlisted = [&](const GroupLines& side) {
        const auto cause = side.causes.find(line.cause);
        return cause == side.causes.end() ? 0 : cause->second->line_error;
      };
      if (figure.a == 0) figure.more_a = std::max(figure.more_a, unlisted(a));
      if (figure.b == 0) figure.more_b = std::max(figure.more_b, unlisted(b));
      diff_.lines.push_back({.group = number, .line = std::move(line)});
    }
  }

  void add_causes() {
    std::array<DiffFigure, kCauseCount> figures{};
    const auto add = [&](const JobView& job, std::int64_t DiffFigure::*side) {
      for (const JobGroup& group : job.groups)
        for (const GroupCause& cause : group.causes)
          figures.at(static_cast<std::size_t>(cause.cause)).*side += cause.at_peak.sum;
    };
    add(*diff_.a, &DiffFigure::a);
    add(*diff_.b, &DiffFigure::b);
    for (const CauseInfo& known : kCauses) {
      const DiffFigure& figure = figures.at(static_cast<std::size_t>(known.cause));
      if (figure.a != 0 || figure.b != 0) diff_.causes.push_back({known.cause, figure});
    }
    largest_change_first(diff_.causes, [](const DiffCause& cause) { return cause.figure.change(); });
  }

  void add_nodes() {
    std::vector<const NodeSum*> rest_a, rest_b;
    for (const NodeSum& node : diff_.a->nodes) rest_a.push_back(&node);
    for (const NodeSum& node : diff_.b->nodes) rest_b.push_back(&node);
    DiffFigure pss;
    add_totals(*diff_.a, pss.a, pss.more_a, diff_.once.a);
    add_totals(*diff_.b, pss.b, pss.more_b, diff_.once.b);
    if (pss.a > 0 && pss.b > 0) diff_.pss = pss;
    pair_nodes(rest_a, rest_b, [](const NodeSum& node) { return node.ranks; });
    pair_nodes(rest_a, rest_b, [](const NodeSum& node) { return node.name; });
    diff_.only_a = std::move(rest_a);
    diff_.only_b = std::move(rest_b);
    for (auto* only : {&diff_.only_a, &diff_.only_b}) std::ranges::stable_sort(*only, {}, &NodeSum::name);
    largest_change_first(diff_.nodes, [](const NodeDiff& node) { return node.total.change(); });
  }

  static void add_totals(const JobView& job, std::int64_t& pss, std::int64_t& without_pss, std::int64_t& once) {
    for (const NodeSum& node : job.nodes) {
      pss += node.pss_peaks;
      without_pss += node.without_pss;
      once += node.total();
    }
  }

  // Those with one key, of which each side has one, are one node.
  template <typename NodeKey>
  void pair_nodes(std::vector<const NodeSum*>& a, std::vector<const NodeSum*>& b, const NodeKey& node_key) {
    std::map<decltype(node_key(*a.front())), std::pair<std::vector<const NodeSum*>, std::vector<const NodeSum*>>> alike;
    for (const NodeSum* node : a) alike[node_key(*node)].first.push_back(node);
    for (const NodeSum* node : b) alike[node_key(*node)].second.push_back(node);
    std::set<const NodeSum*> paired;
    for (const auto& [key, nodes] : alike) {
      if (key.empty() || nodes.first.size() != 1 || nodes.second.size() != 1) continue;
      add_pair(*nodes.first.front(), *nodes.second.front());
      paired.insert({nodes.first.front(), nodes.second.front()});
    }
    for (auto* rest : {&a, &b}) std::erase_if(*rest, [&](const NodeSum* node) { return paired.contains(node); });
  }

  void add_pair(const NodeSum& a, const NodeSum& b) {
    NodeDiff node{.a = &a,
                  .b = &b,
                  .total = between(a.total(), b.total()),
                  .rss_sum = between(a.rss_sum_peak, b.rss_sum_peak),
                  .pss = between(a.pss_peaks, b.pss_peaks)};
    node.pss.more_a = a.without_pss;
    node.pss.more_b = b.without_pss;
    diff_.nodes.push_back(node);
  }

  using OutlierKey = std::tuple<GroupKey, std::int64_t, std::string, std::string>;
  static OutlierKey outlier_key(const JobView& job, const Outlier& outlier) {
    const GroupKey group = key_of(job.groups[outlier.group]);
    if (outlier.process.rank) return {group, *outlier.process.rank, "", ""};
    return {group, -1, outlier.process.node, outlier.line.text + '\0' + outlier.line.mapping};
  }

  void add_outliers() {
    std::map<OutlierKey, OutlierDiff> outliers;
    const auto add = [&](const JobView& job, const JobView& other, const Outlier* OutlierDiff::*side) {
      for (const Outlier& outlier : job.outliers) {
        OutlierDiff& both = outliers[outlier_key(job, outlier)];
        if (both.*side == nullptr) both.*side = &outlier;  // of several the furthest
        const auto& rank = outlier.process.rank;
        both.is_missing = rank && !other.ranks.empty() && !std::ranges::binary_search(other.ranks, *rank);
      }
    };
    add(*diff_.a, *diff_.b, &OutlierDiff::a);
    add(*diff_.b, *diff_.a, &OutlierDiff::b);
    for (const auto& [key, outlier] : outliers) diff_.outliers.push_back(outlier);
    std::ranges::stable_sort(diff_.outliers, std::greater<>(), [](const OutlierDiff& outlier) {
      const Outlier& one = outlier.either();
      const int order = outlier.a == nullptr ? 2 : outlier.b == nullptr ? 1 : 0;
      return std::pair(order, one.held - one.median);
    });
  }

  JobDiff diff_;
};

}  // namespace

const Outlier& OutlierDiff::either() const {
  const Outlier* one = b != nullptr ? b : a;
  require(one != nullptr, "an outlier of one of both");
  return *one;
}

JobDiff diff_jobs(const JobView& a, const JobView& b) { return Differ(a, b).take(); }

}  // namespace whyrss
