// Which of a site's figures is asked for, where only one can be shown.
#pragma once

#include <cstdint>

#include "report/view/view.h"

namespace whyrss {

enum class SiteFigure : std::uint8_t {
  resident,  // at the interval's end
  growth,    // from its begin to its end
  at_peak,   // in the walk where the process's RSS was largest
};

inline std::int64_t figure_of(const SiteView& site, SiteFigure which) {
  if (which == SiteFigure::growth) return site.growth;
  return which == SiteFigure::at_peak ? site.at_peak : site.resident;
}

// Of all its sites, which they sum to.
inline std::int64_t figure_of(const CauseView& cause, SiteFigure which) {
  if (which == SiteFigure::growth) return cause.rss.growth();
  return which == SiteFigure::at_peak ? cause.at_peak : cause.rss.last;
}

inline std::int64_t figure_of(const Figure& figure, SiteFigure which) {
  if (which == SiteFigure::growth) return figure.growth();
  return which == SiteFigure::at_peak ? figure.peak : figure.last;
}

}  // namespace whyrss
