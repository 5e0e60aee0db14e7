#include "report/view/view.h"

#include <algorithm>

namespace whyrss {
namespace {

const SiteShares& shares_of(const SiteView& site) {
  static const SiteShares kNone;
  return site.shares != nullptr ? *site.shares : kNone;
}

}  // namespace

const std::string& SiteView::mapping() const {
  static const std::string kNameless;
  return name != nullptr ? *name : kNameless;
}

const std::vector<TouchView>& SiteView::touched() const { return shares_of(*this).touched; }
const std::vector<AdviceView>& SiteView::advised() const { return shares_of(*this).advised; }

const CauseView* ProcessView::find(Cause cause) const {
  for (const CauseView& view : causes)
    if (view.cause == cause) return &view;
  return nullptr;
}

bool was_there(const View& view, const ProcessView& process) {
  const ProcessAccount& account = *process.account;
  return account.born_s <= view.interval.to_s && account.ended_s.value_or(view.interval.to_s) >= view.interval.from_s;
}

}  // namespace whyrss
