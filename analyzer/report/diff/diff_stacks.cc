#include "report/diff/diff_stacks.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "report/diff/diff_lines.h"
#include "report/view/blame.h"

namespace whyrss {
namespace {

using Kind = DiffFrame::Kind;

// A frame as one side has it.
struct NamedFrame {
  Kind kind = Kind::native;
  std::string function, file, label;
  int number = 0;
};

// What is left of it when its code moves within the file.
struct FramePlace {
  Kind kind = Kind::native;
  std::string function, file;
  friend auto operator<=>(const FramePlace&, const FramePlace&) = default;
};

struct StackSum {
  std::int64_t bytes = 0;
  double variance = 0;
};

struct Side {
  std::map<std::tuple<Cause, StackId, std::string>, StackSum> sums;  // of sites; a mapping only where there is no stack
  std::map<FrameId, NamedFrame> frames;
  std::map<std::string, NamedFrame> mappings;
};

NamedFrame named(const StackTable& stacks, FrameId id) {
  const Frame& frame = stacks[id];
  NamedFrame name{frame.kind == FrameKind::python ? Kind::python : Kind::native, frame.function, frame.file,
                  code_line(stacks, &frame), frame.line};
  if (name.function.empty()) name.function = name.label;
  if (name.file.empty()) name.file = stacks[frame.module].path;
  return name;
}

Side side_of(const View& view, SiteFigure which) {
  Side side;
  const StackTable& stacks = view.recording->stacks;
  for (const ProcessView& process : view.processes)
    for (const CauseView& cause : process.causes)
      for (const SiteView& site : cause.sites) {
        // Our own has another name in each recording.
        const bool is_ours = cause.cause == Cause::whyrss;
        const StackId stack = is_ours ? kEmptyStack : site.stack;
        const std::string mapping = is_ours || stack != kEmptyStack ? "" : site.mapping();
        StackSum& sum = side.sums[{cause.cause, stack, mapping}];
        sum.bytes += figure_of(site, which);
        sum.variance += site.variance;
      }
  for (const auto& [site, sum] : side.sums) {
    const auto& [cause, stack, mapping] = site;
    for (const FrameId frame : stacks[stack])
      if (!side.frames.contains(frame)) side.frames.emplace(frame, named(stacks, frame));
    if (!mapping.empty()) side.mappings.emplace(mapping, NamedFrame{Kind::mapping, "", mapping, base_name(mapping), 0});
  }
  return side;
}

std::vector<std::string> files_of(const Side& side) {
  std::set<std::string> files;
  for (const auto& [id, frame] : side.frames) files.insert(frame.file);
  for (const auto& [mapping, frame] : side.mappings) files.insert(mapping);
  return {files.begin(), files.end()};
}

// Numbers the frames of both sides, with one number for what is the same in both.
class Frames {
 public:
  Frames(const Side& a, const Side& b) {
    for (auto& [from, to] : pair_files(files_of(a), files_of(b))) in_b_.emplace(std::move(from), std::move(to));
    collect(a, true);
    collect(b, false);
    for (const auto& [place, lines] : lines_) number(place, lines);
  }

  [[nodiscard]] std::size_t of_a(const NamedFrame& frame) const { return a_.at({place_of(frame, true), frame.number}); }
  [[nodiscard]] std::size_t of_b(const NamedFrame& frame) const {
    return b_.at({place_of(frame, false), frame.number});
  }
  std::vector<DiffFrame> take() { return std::move(frames_); }

 private:
  using Labels = std::map<int, std::string>;  // by line number
  struct Lines {
    Labels a, b;
  };

  [[nodiscard]] FramePlace place_of(const NamedFrame& frame, bool is_a) const {
    const auto other = is_a ? in_b_.find(frame.file) : in_b_.end();
    return {frame.kind, frame.function, other != in_b_.end() ? other->second : frame.file};
  }

  void collect(const Side& side, bool is_a) {
    const auto add = [&](const NamedFrame& frame) {
      Lines& lines = lines_[place_of(frame, is_a)];
      (is_a ? lines.a : lines.b).emplace(frame.number, frame.label);
    };
    for (const auto& [id, frame] : side.frames) add(frame);
    for (const auto& [mapping, frame] : side.mappings) add(frame);
  }

  void number(const FramePlace& place, const Lines& lines) {
    const auto numbers = [](const Labels& labels) {
      std::vector<int> list;
      for (const auto& [number, label] : labels) list.push_back(number);
      return list;
    };
    for (const auto& [number_a, number_b] : pair_lines(numbers(lines.a), numbers(lines.b))) {
      if (number_a != kNoLineNumber) a_.emplace(std::pair(place, number_a), frames_.size());
      if (number_b != kNoLineNumber) b_.emplace(std::pair(place, number_b), frames_.size());
      const std::string& label = number_b != kNoLineNumber ? lines.b.at(number_b) : lines.a.at(number_a);
      frames_.push_back({place.kind, label, place.file, std::max(number_a, 0), std::max(number_b, 0)});
    }
  }

  std::map<std::string, std::string> in_b_;  // files of A that are there under another name
  std::map<FramePlace, Lines> lines_;
  std::map<std::pair<FramePlace, int>, std::size_t> a_, b_;
  std::vector<DiffFrame> frames_;
};

using Stacks = std::map<std::pair<Cause, std::vector<std::size_t>>, DiffFigure>;

template <typename Number, typename Add>
void add_side(const View& view, const Side& side, Stacks& stacks, Number number, Add add) {
  std::map<FrameId, std::size_t> numbers;
  for (const auto& [id, frame] : side.frames) numbers.emplace(id, number(frame));
  for (const auto& [site, sum] : side.sums) {
    const auto& [cause, stack, mapping] = site;
    std::vector<std::size_t> path;
    const std::vector<FrameId>& frames = view.recording->stacks[stack];
    for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) path.push_back(numbers.at(*frame));
    if (!mapping.empty()) path.push_back(number(side.mappings.at(mapping)));
    DiffFigure& figure = stacks[{cause, std::move(path)}];
    add(figure, sum.bytes);
    figure.variance += sum.variance;
  }
}

}  // namespace

std::vector<std::pair<std::string, std::string>> pair_files(const std::vector<std::string>& a,
                                                            const std::vector<std::string>& b) {
  std::set<std::string> left_a(a.begin(), a.end()), left_b(b.begin(), b.end());
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const std::string& file : a)
    if (left_b.erase(file) > 0) {
      left_a.erase(file);
      pairs.emplace_back(file, file);
    }
  std::multimap<std::string, std::string> by_name;
  for (const std::string& file : left_b) by_name.emplace(base_name(file), file);
  std::vector<std::tuple<std::size_t, std::string, std::string>> candidates;
  for (const std::string& file : left_a)
    for (auto [at, end] = by_name.equal_range(base_name(file)); at != end && !at->first.empty(); ++at)
      candidates.emplace_back(common_end(file, at->second), file, at->second);
  std::ranges::stable_sort(candidates, std::ranges::greater{},
                           [](const auto& candidate) { return std::get<0>(candidate); });
  for (auto& [alike, from, to] : candidates) {
    if (!left_a.contains(from) || !left_b.contains(to)) continue;
    left_a.erase(from);
    left_b.erase(to);
    pairs.emplace_back(std::move(from), std::move(to));
  }
  return pairs;
}

DiffStacks diff_stacks(const View& a, const View& b, SiteFigure which) {
  const Side side_a = side_of(a, which), side_b = side_of(b, which);
  Frames frames(side_a, side_b);
  Stacks stacks;
  add_side(
      a, side_a, stacks, [&](const NamedFrame& frame) { return frames.of_a(frame); },
      [](DiffFigure& figure, std::int64_t bytes) { figure.a += bytes; });
  add_side(
      b, side_b, stacks, [&](const NamedFrame& frame) { return frames.of_b(frame); },
      [](DiffFigure& figure, std::int64_t bytes) { figure.b += bytes; });
  DiffStacks result{.frames = frames.take(), .stacks = {}};
  for (const auto& [place, figure] : stacks)
    if (figure.a != 0 || figure.b != 0) result.stacks.push_back({place.first, place.second, figure});
  return result;
}

}  // namespace whyrss
