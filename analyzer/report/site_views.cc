#include "report/site_views.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace whyrss {
namespace {

using Touchers = std::map<std::pair<StackId, bool>, TouchView>;

void add_touch(const Slice& slice, std::int64_t sign, Touchers& touchers) {
  std::int64_t open = slice.bytes;
  const auto add = [&](StackId stack, bool by_kernel, std::int64_t bytes, double variance) {
    TouchView& touch = touchers[{stack, by_kernel}];
    touch.stack = stack;
    touch.by_kernel = by_kernel;
    touch.growth += sign * bytes;
    if (sign > 0) touch.resident += bytes;
    touch.variance += variance;
  };
  for (const TouchShare& share : slice.touched) {
    add(share.stack, share.by_kernel, share.bytes, share.variance);
    open -= share.bytes;
  }
  add(kEmptyStack, false, open, 0);
}

std::vector<TouchView> touch_views(const Touchers& touchers) {
  std::vector<TouchView> views;
  const bool known = std::any_of(touchers.begin(), touchers.end(), [](const auto& entry) {
    return entry.second.stack != kEmptyStack || entry.second.by_kernel;
  });
  if (!known) return views;
  for (const auto& [key, touch] : touchers)
    if (touch.growth != 0 || touch.resident != 0) views.push_back(touch);
  std::stable_sort(views.begin(), views.end(), [](const TouchView& a, const TouchView& b) {
    return std::tie(a.growth, a.resident) > std::tie(b.growth, b.resident);
  });
  return views;
}

using Advisers = std::map<StackId, AdviceView>;

void add_advice(const Slice& slice, std::int64_t sign, Advisers& advisers) {
  for (const AdviceShare& share : slice.advised) {
    AdviceView& advice = advisers[share.stack];
    advice.stack = share.stack;
    advice.growth += sign * share.bytes;
    if (sign > 0) advice.resident += share.bytes;
  }
}

std::vector<AdviceView> advice_views(const Advisers& advisers) {
  std::vector<AdviceView> views;
  for (const auto& [stack, advice] : advisers)
    if (advice.growth != 0 || advice.resident != 0) views.push_back(advice);
  std::ranges::stable_sort(views, std::ranges::greater{},
                           [](const AdviceView& advice) { return std::pair(advice.growth, advice.resident); });
  return views;
}

}  // namespace

std::map<Site, SiteView> site_views(const Account* first, const Account* last, const Account* peak,
                                    const Account* huge) {
  std::map<Site, SiteView> sites;
  std::map<Site, Touchers> touchers;
  std::map<Site, Advisers> advisers;
  const auto add = [&](const Account* account, auto&& count) {
    if (account == nullptr) return;
    for (const Slice& slice : account->slices) {
      SiteView& site = sites[slice.site];
      site.stack = slice.site.stack;
      site.mapping = slice.site.mapping;
      site.in_large_block = slice.site.in_large_block;
      count(site, slice);
    }
  };
  // Blocks that live at both ends were sampled once: the errors cancel in part, and their sum is too cautious.
  add(first, [&](SiteView& site, const Slice& slice) {
    add_touch(slice, -1, touchers[slice.site]);
    if (!slice.advised.empty()) add_advice(slice, -1, advisers[slice.site]);
    site.growth -= slice.bytes;
    site.variance += slice.variance;
  });
  add(last, [&](SiteView& site, const Slice& slice) {
    add_touch(slice, 1, touchers[slice.site]);
    if (!slice.advised.empty()) add_advice(slice, 1, advisers[slice.site]);
    site.growth += slice.bytes;
    site.resident += slice.bytes;
    site.exclusive += slice.exclusive_bytes;
    site.variance += slice.variance;
  });
  add(peak, [](SiteView& site, const Slice& slice) { site.at_peak += slice.bytes; });
  add(huge, [](SiteView& site, const Slice& slice) { site.huge = site.huge.value_or(0) + slice.huge_bytes; });
  for (const auto& [site, of_site] : touchers) sites[site].touched = touch_views(of_site);
  for (const auto& [site, of_site] : advisers) sites[site].advised = advice_views(of_site);
  return sites;
}

}  // namespace whyrss
