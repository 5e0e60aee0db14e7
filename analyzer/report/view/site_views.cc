#include "report/view/site_views.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <unordered_set>
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

// The sites of one cause, each once.
class CauseSites {
 public:
  // Valid until the next call.
  SiteView& operator[](const SliceList::Iterator& at) { return sites_[number_of(at)]; }
  void reserve(std::size_t count) { sites_.reserve(count + 1); }  // one is tried

  // Of accounts that tell who touched a site, or gave it up, at one end or the other.
  void note_shares(const SliceList::Iterator& at) {
    if (at->touched.empty() && at->advised.empty()) return;
    shares_.try_emplace(number_of(at));
  }
  void add_shares(const SliceList::Iterator& at, std::int64_t sign) {
    if (shares_.empty()) return;
    const auto found = shares_.find(number_of(at));
    if (found == shares_.end()) return;
    add_touch(*at, sign, found->second.touchers);
    add_advice(*at, sign, found->second.advisers);
  }

  std::vector<SiteView> take() {
    for (const auto& [number, shares] : shares_)
      sites_[number].shares = std::make_shared<const SiteShares>(
          SiteShares{.touched = touch_views(shares.touchers), .advised = advice_views(shares.advisers)});
    numbers_.clear();
    sites_.shrink_to_fit();
    std::ranges::sort(sites_, [](const SiteView& a, const SiteView& b) {
      if (a.growth != b.growth) return a.growth > b.growth;
      if (a.resident != b.resident) return a.resident > b.resident;
      return place_of(a) < place_of(b);
    });
    return std::move(sites_);
  }

 private:
  struct Shares {
    Touchers touchers;
    Advisers advisers;
  };
  static std::tuple<StackId, const std::string&, bool> place_of(const SiteView& site) {
    return {site.stack, site.mapping(), site.in_large_block};
  }
  struct Hash {
    const std::vector<SiteView>* sites;
    std::size_t operator()(std::uint32_t number) const {
      const SiteView& site = (*sites)[number];
      return std::hash<std::string>{}(site.mapping()) ^
             (std::uint64_t{static_cast<std::uint32_t>(site.stack)} * 2 + (site.in_large_block ? 1 : 0)) *
                 0x9e3779b97f4a7c15U;
    }
  };
  struct Equal {
    const std::vector<SiteView>* sites;
    bool operator()(std::uint32_t a, std::uint32_t b) const { return place_of((*sites)[a]) == place_of((*sites)[b]); }
  };

  std::uint32_t number_of(const SliceList::Iterator& at) {
    SiteView& view = sites_.emplace_back();
    view.stack = at->site.stack;
    view.in_large_block = at->site.in_large_block;
    if (!at.mapping().empty()) view.name = &at.mapping();
    const auto [known, is_new] = numbers_.insert(static_cast<std::uint32_t>(sites_.size() - 1));
    if (!is_new) sites_.pop_back();
    return *known;
  }

  std::vector<SiteView> sites_;
  std::unordered_set<std::uint32_t, Hash, Equal> numbers_{0, Hash{&sites_}, Equal{&sites_}};
  std::map<std::uint32_t, Shares> shares_;
};

std::size_t site_count(const Account* account, Cause cause) {
  if (account == nullptr) return 0;
  return account->slices.sum_of(cause).count;
}

}  // namespace

std::vector<SiteView> site_views(Cause cause, const Account* first, const Account* last, const Account* peak,
                                 const Account* huge) {
  CauseSites sites;
  sites.reserve(std::max(site_count(first, cause), site_count(last, cause)));
  const auto visit = [&](const Account* account, auto&& count) {
    if (account == nullptr) return;
    if (account->slices.sum_of(cause).count == 0) return;
    for (auto at = account->slices.begin(); at != SliceList::end(); ++at)
      if (at->site.cause == cause) count(at);
  };
  // Blocks that live at both ends were sampled once: the errors cancel in part, and their sum is too cautious.
  visit(first, [&](const SliceList::Iterator& at) {
    SiteView& site = sites[at];
    site.growth -= at->bytes;
    site.variance += at->variance;
    sites.note_shares(at);
  });
  visit(last, [&](const SliceList::Iterator& at) {
    SiteView& site = sites[at];
    site.growth += at->bytes;
    site.resident += at->bytes;
    site.exclusive += at->exclusive_bytes;
    site.variance += at->variance;
    sites.note_shares(at);
  });
  visit(first, [&](const SliceList::Iterator& at) { sites.add_shares(at, -1); });
  visit(last, [&](const SliceList::Iterator& at) { sites.add_shares(at, 1); });
  visit(peak, [&](const SliceList::Iterator& at) { sites[at].at_peak += at->bytes; });
  visit(huge, [&](const SliceList::Iterator& at) { sites[at].huge += at->huge_bytes; });
  return sites.take();
}

}  // namespace whyrss
