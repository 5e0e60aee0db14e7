#include "attribute/touch_samples.h"

namespace whyrss {

void TouchSamples::put(const TouchSample& sample) {
  Stretch& stretch = stretches_[stretch_of(sample.page)];
  const auto place = std::ranges::lower_bound(stretch, sample.page, {}, &TouchSample::page);
  if (place != stretch.end() && place->page == sample.page)
    *place = sample;
  else
    stretch.insert(place, sample);
}

const TouchSample* TouchSamples::find(std::uint64_t page) const {
  const auto found = stretches_.find(stretch_of(page));
  if (found == stretches_.end()) return nullptr;
  const auto place = std::ranges::lower_bound(found->second, page, {}, &TouchSample::page);
  return place != found->second.end() && place->page == page ? &*place : nullptr;
}

void TouchSamples::erase(std::uint64_t start, std::uint64_t end) {
  for (auto at = stretches_.lower_bound(stretch_of(start)); at != stretches_.end() && at->first < end;) {
    std::erase_if(at->second, [&](const TouchSample& sample) { return sample.page >= start && sample.page < end; });
    at = at->second.empty() ? stretches_.erase(at) : std::next(at);
  }
}

}  // namespace whyrss
