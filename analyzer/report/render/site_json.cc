#include "report/render/site_json.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "model/library_allocator.h"

namespace whyrss {
namespace {

using Json = nlohmann::ordered_json;

// A site may have thousands of touching stacks: the smaller ones are summed as those that are not known.
constexpr std::size_t kMostTouchers = 8;

// What one entry of a list stands for.
struct EntrySum {
  std::int64_t growth = 0;
  std::int64_t resident = 0;
  double variance = 0;
  std::size_t small = 0;  // of schema 2: how many the line of the stack stands for; 0: the stack is whole

  void add(std::int64_t more_growth, std::int64_t more_resident, double more_variance) {
    growth += more_growth;
    resident += more_resident;
    variance += more_variance;
  }
  void put_small(Json& json) const {
    if (small > 0) json["small_sites"] = small;
  }
};

// By growth, then by what is resident, then by key.
template <typename Key, typename Value, typename SumOf>
std::vector<const std::pair<const Key, Value>*> largest_first(const std::map<Key, Value>& sums, SumOf sum_of) {
  std::vector<const std::pair<const Key, Value>*> sorted;
  for (const auto& entry : sums) sorted.push_back(&entry);
  std::ranges::stable_sort(sorted, std::ranges::greater{}, [&](const auto* entry) {
    const EntrySum& sum = sum_of(entry->second);
    return std::pair(sum.growth, sum.resident);
  });
  return sorted;
}

const EntrySum& itself(const EntrySum& sum) { return sum; }

// Which sites are small, and what is kept of their stacks.
class Shortening {
 public:
  Shortening(const StackJson& stacks, const SiteStyle& style)
      : stacks_(&stacks.table()), shortens_(stacks.schema() != JsonSchema::v1 && !style.keeps_small_sites) {}

  [[nodiscard]] bool is_small(std::int64_t growth, std::int64_t resident, double variance) const {
    const std::int64_t bytes = std::max(std::abs(growth), resident);
    return shortens_ && (bytes < kSmallSiteBytes || static_cast<double>(bytes) < 2 * std::sqrt(variance));
  }
  [[nodiscard]] StackParts parts(StackId stack, bool is_small) const {
    return is_small ? blamed_part(*stacks_, stack) : parts_of(*stacks_, stack);
  }

 private:
  const StackTable* stacks_;
  bool shortens_;
};

struct SitePlace {
  StackParts stack;
  bool is_small;
  std::string mapping, allocator;
  bool in_large_block;
  StackId whole;  // apart also where reports give the same frames

  auto operator<=>(const SitePlace&) const = default;
};

struct Toucher {
  StackParts stack;
  bool is_small, by_kernel;

  auto operator<=>(const Toucher&) const = default;
};

struct SiteSums {
  EntrySum sum;
  std::int64_t huge = 0;
  std::map<Toucher, EntrySum> touched;
  EntrySum touched_by_others;
  std::map<StackParts, EntrySum> advised;
};

void add_shares(const Shortening& shortening, const SiteView& view, bool is_small, SiteSums& site) {
  for (const TouchView& touch : view.touched()) {
    if (touch.stack == kEmptyStack && !touch.by_kernel) {
      site.touched_by_others.add(touch.growth, touch.resident, 0);
      continue;
    }
    const bool small = is_small || shortening.is_small(touch.growth, touch.resident, touch.variance);
    EntrySum& sum = site.touched[{shortening.parts(touch.stack, small), small, touch.by_kernel}];
    sum.add(touch.growth, touch.resident, touch.variance);
    sum.small += small ? 1 : 0;
  }
  for (const AdviceView& advice : view.advised()) {
    const bool small = is_small || shortening.is_small(advice.growth, advice.resident, 0);
    site.advised[shortening.parts(advice.stack, small)].add(advice.growth, advice.resident, 0);
  }
}

Json touched_json(StackJson& stacks, const SiteSums& site) {
  Json list = Json::array();
  EntrySum rest = site.touched_by_others;
  for (const auto* entry : largest_first(site.touched, itself)) {
    const auto& [toucher, sum] = *entry;
    if (list.size() >= kMostTouchers) {
      rest.add(sum.growth, sum.resident, 0);
      continue;
    }
    Json json{{"growth", sum.growth}, {"resident", sum.resident}};
    stacks.set(json, toucher.stack);
    json["standard_error"] = rounded_error(sum.variance);
    json["by_kernel"] = toucher.by_kernel;
    sum.put_small(json);
    list.push_back(std::move(json));
  }
  if (rest.growth != 0 || rest.resident != 0)
    list.push_back({{"growth", rest.growth},
                    {"resident", rest.resident},
                    {"stack", stacks({})},
                    {"standard_error", 0},
                    {"by_kernel", false}});
  return list;
}

Json advised_json(StackJson& stacks, const SiteSums& site) {
  Json list = Json::array();
  for (const auto* entry : largest_first(site.advised, itself))
    stacks.set(list.emplace_back(Json{{"growth", entry->second.growth}, {"resident", entry->second.resident}}),
               entry->first);
  return list;
}

Json site_json(StackJson& stacks, const SitePlace& place, const SiteSums& site) {
  Json json{{"growth", site.sum.growth},
            {"resident", site.sum.resident},
            {"mapping", place.mapping.empty() ? Json(nullptr) : Json(place.mapping)}};
  stacks.set(json, place.stack);
  json["standard_error"] = rounded_error(site.sum.variance);
  json["touched_by"] = touched_json(stacks, site);
  if (site.huge > 0) json["huge_bytes"] = site.huge;
  if (place.in_large_block) json["in_large_block"] = true;
  if (!site.advised.empty()) json["advised_by"] = advised_json(stacks, site);
  if (!place.allocator.empty()) json["allocator"] = place.allocator;
  site.sum.put_small(json);
  return json;
}

}  // namespace

std::int64_t rounded_error(double variance) { return static_cast<std::int64_t>(std::llround(std::sqrt(variance))); }

Json sites_json(StackJson& stacks, const CauseView& cause, const SiteStyle& style) {
  const Shortening shortening(stacks, style);
  std::map<SitePlace, SiteSums> sites;
  for (const SiteView& view : cause.sites) {
    const bool small = shortening.is_small(view.growth, view.resident, view.variance);
    const auto allocator = allocator_of(stacks.table(), cause.cause, view.stack);
    SiteSums& site = sites[{.stack = shortening.parts(view.stack, small),
                            .is_small = small,
                            .mapping = view.mapping(),
                            .allocator = allocator ? allocator_name(stacks.table()[allocator->library].path) : "",
                            .in_large_block = view.in_large_block,
                            .whole = small ? kEmptyStack : view.stack}];
    site.sum.add(view.growth, view.resident, view.variance);
    site.sum.small += small ? 1 : 0;
    site.huge += view.huge;
    add_shares(shortening, view, small, site);
  }
  Json list = Json::array();
  SiteSums rest;
  for (const auto* entry : largest_first(sites, [](const SiteSums& site) -> const EntrySum& { return site.sum; })) {
    const auto& [place, site] = *entry;
    if (style.top == 0 || list.size() < style.top)
      list.push_back(site_json(stacks, place, site));
    else
      rest.sum.add(site.sum.growth, site.sum.resident, site.sum.variance);
  }
  if (list.size() < sites.size()) list.push_back(site_json(stacks, SitePlace{}, rest));
  return list;
}

Json cow_sites_json(StackJson& stacks, const std::vector<CowSiteView>& views, const SiteStyle& style) {
  using Key = std::tuple<std::vector<FrameId>, std::vector<FrameId>, bool, bool>;
  const Shortening shortening(stacks, style);
  // Whole: a thread that waited stands in the stack, below a frame that says so.
  const auto frames_of = [&](StackId stack, bool small) {
    if (!small) return stacks.table()[stack];
    StackParts part = blamed_part(stacks.table(), stack);
    return part.during.empty() ? std::move(part.stack) : std::move(part.during);
  };
  std::map<Key, EntrySum> sums;
  for (const CowSiteView& view : views) {
    const bool small = shortening.is_small(view.copied, 0, view.variance);
    EntrySum& sum =
        sums[{frames_of(view.allocated_at, small), frames_of(view.written_at, small), view.in_large_block, small}];
    sum.add(view.copied, 0, view.variance);
    sum.small += small ? 1 : 0;
  }
  const auto json_of = [&](const Key& key, const EntrySum& sum) {
    Json json{{"copied", sum.growth},
              {"allocated_at", stacks(std::get<0>(key))},
              {"written_at", stacks(std::get<1>(key))},
              {"in_large_block", std::get<2>(key)},
              {"standard_error", rounded_error(sum.variance)}};
    sum.put_small(json);
    return json;
  };
  Json list = Json::array();
  EntrySum rest;
  for (const auto* entry : largest_first(sums, itself)) {
    if (style.top == 0 || list.size() < style.top)
      list.push_back(json_of(entry->first, entry->second));
    else
      rest.add(entry->second.growth, 0, entry->second.variance);
  }
  if (rest.growth != 0) list.push_back(json_of({}, rest));
  return list;
}

}  // namespace whyrss
