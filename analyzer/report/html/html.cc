#include "report/html/html.h"

#include "report/html/html_data.h"
#include "report/html/html_page.h"
#include "report/render/gzip.h"

namespace whyrss {

void write_html(const View& view, const std::vector<Verdict>& verdicts,
                const std::function<void(std::string_view)>& write) {
  HtmlBounds bounds;
  std::string packed = gzipped(html_data(view, verdicts, bounds), kPageLevel);
  // Names and stacks of some recordings are longer than others: what does not fit is asked for in smaller pieces.
  for (int halvings = 0; packed.size() > kMostPacked && halvings < 8; ++halvings) {
    bounds = bounds.halved();
    packed = gzipped(html_data(view, verdicts, bounds), kPageLevel);
  }
  write_page(packed, write);
}

}  // namespace whyrss
