#include "report/diff/diff_lines.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "report/view/blame.h"

namespace whyrss {
namespace {

using Place = LinePlace;
using Lines = LineSums;
using Places = LinePlaces;

struct Named {
  std::string function, file, shown;
  int number = 0;
};

// Native code without a name is named by its address, a site without a recorded stack by its mapping. Our own mapping
// has another name in each recording.
Named name_of(const StackTable& stacks, Cause cause, const SiteView& site) {
  if (cause == Cause::whyrss) return {};
  const Frame* frame = blamed_frame(stacks, site.stack);
  if (frame == nullptr) return {"", site.mapping(), base_name(site.mapping()), 0};
  Named named{frame->function, frame->file, code_line(stacks, frame), frame->line};
  if (named.function.empty()) named.function = named.shown;
  if (named.file.empty()) named.file = stacks[frame->module].path;
  return named;
}

Places places_of(const View& view, SiteFigure which) {
  Places places;
  const StackTable& stacks = view.recording->stacks;
  std::unordered_map<StackId, Named> names;  // of stacks; many sites share one
  for (const ProcessView& process : view.processes)
    for (const CauseView& cause : process.causes)
      for (const SiteView& site : cause.sites) {
        const bool has_stack = site.stack != kEmptyStack && cause.cause != Cause::whyrss;
        const auto known = has_stack ? names.find(site.stack) : names.end();
        const Named named = known != names.end() ? known->second : name_of(stacks, cause.cause, site);
        if (has_stack && known == names.end() && blamed_frame(stacks, site.stack) != nullptr)
          names.emplace(site.stack, named);
        LineSum& sum = places[{cause.cause, named.function, named.file}][named.number];
        sum.shown = named.shown;
        sum.bytes += figure_of(site, which);
        sum.variance += site.variance;
      }
  return places;
}

std::vector<int> numbers_of(const Lines& lines) {
  std::vector<int> numbers;
  for (const auto& [number, sum] : lines) numbers.push_back(number);
  return numbers;
}

class Pairing {
 public:
  Pairing(Places a, Places b) : a_(std::move(a)), b_(std::move(b)) {}

  std::vector<DiffLine> take() {
    for (auto at = a_.begin(); at != a_.end();) {
      const auto same = b_.find(at->first);
      if (same == b_.end()) {
        ++at;
        continue;
      }
      add(at->first, at->second, same->first, same->second);
      b_.erase(same);
      at = a_.erase(at);
    }
    pair_moved_files();
    static const Lines kNone;
    for (const auto& [place, lines] : a_) add(place, lines, place, kNone);
    for (const auto& [place, lines] : b_) add(place, kNone, place, lines);
    return std::move(lines_);
  }

 private:
  // The program may lie elsewhere in B: the same function in a file of the same name, the paths most alike first.
  void pair_moved_files() {
    std::map<std::tuple<Cause, std::string, std::string>, std::vector<const Place*>> in_b;
    for (const auto& [place, lines] : b_) in_b[{place.cause, place.function, base_name(place.file)}].push_back(&place);
    std::vector<std::tuple<std::size_t, Place, Place>> candidates;
    for (const auto& [place, lines] : a_) {
      const auto found = in_b.find({place.cause, place.function, base_name(place.file)});
      if (found == in_b.end() || base_name(place.file).empty()) continue;
      for (const Place* other : found->second)
        candidates.emplace_back(common_end(place.file, other->file), place, *other);
    }
    std::ranges::stable_sort(candidates, std::ranges::greater{},
                             [](const auto& candidate) { return std::get<0>(candidate); });
    for (const auto& [alike, place, other] : candidates) {
      const auto at = a_.find(place), bt = b_.find(other);
      if (at == a_.end() || bt == b_.end()) continue;  // has been paired
      add(at->first, at->second, bt->first, bt->second);
      a_.erase(at);
      b_.erase(bt);
    }
  }

  void add(const Place& place_a, const Lines& a, const Place& place_b, const Lines& b) {
    for (const auto& [number_a, number_b] : pair_lines(numbers_of(a), numbers_of(b))) {
      const auto at = a.find(number_a), bt = b.find(number_b);
      const bool is_in_a = at != a.end(), is_in_b = bt != b.end();
      const Place& place = is_in_b ? place_b : place_a;
      DiffLine line{.cause = place.cause,
                    .line = is_in_b ? bt->second.shown : at->second.shown,
                    .function = place.function,
                    .file = place.file,
                    .line_a = is_in_a ? number_a : 0,
                    .line_b = is_in_b ? number_b : 0};
      if (is_in_a) line.figure = {.a = at->second.bytes, .variance = at->second.variance, .more_a = at->second.more};
      if (is_in_b) {
        line.figure.b = bt->second.bytes;
        line.figure.variance += bt->second.variance;
        line.figure.more_b = bt->second.more;
      }
      lines_.push_back(std::move(line));
    }
  }

  Places a_, b_;
  std::vector<DiffLine> lines_;
};

// How far lines of A have moved in B: what lets most of them agree, and of several the shortest.
int best_shift(const std::vector<int>& a, const std::vector<int>& b) {
  std::map<int, int> agreeing;
  for (const int from : a)
    for (const int to : b) ++agreeing[to - from];
  int best = 0, most = 0;
  for (const auto& [shift, count] : agreeing)
    if (std::tuple(count, -std::abs(shift)) > std::tuple(most, -std::abs(best)))
      std::tie(best, most) = std::tuple(shift, count);
  return best;
}

}  // namespace

std::size_t common_end(const std::string& a, const std::string& b) {
  std::size_t names = 0;
  for (auto at = a.rbegin(), bt = b.rbegin(); at != a.rend() && bt != b.rend() && *at == *bt; ++at, ++bt)
    names += *at == '/' ? 1 : 0;
  return names;
}

std::vector<std::pair<int, int>> pair_lines(const std::vector<int>& a, const std::vector<int>& b) {
  std::vector<std::pair<int, int>> pairs;
  const int shift = a.empty() || b.empty() ? 0 : best_shift(a, b);
  for (const int number : a)
    pairs.emplace_back(number, std::ranges::binary_search(b, number + shift) ? number + shift : kNoLineNumber);
  for (const int number : b)
    if (!std::ranges::binary_search(a, number - shift)) pairs.emplace_back(kNoLineNumber, number);
  return pairs;
}

std::vector<DiffLine> diff_lines(const View& a, const View& b, SiteFigure which) {
  return pair_places(places_of(a, which), places_of(b, which));
}

std::vector<DiffLine> pair_places(LinePlaces a, LinePlaces b) { return Pairing(std::move(a), std::move(b)).take(); }

}  // namespace whyrss
