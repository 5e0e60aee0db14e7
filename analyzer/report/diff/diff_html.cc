#include <algorithm>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "report/diff/diff_formats.h"
#include "report/diff/diff_stacks.h"
#include "report/html/html_columns.h"
#include "report/html/html_page.h"
#include "report/html/html_stacks.h"
#include "report/render/gzip.h"

namespace whyrss {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kDiffFormat = 1;

// What is kept at most; the largest stacks stay.
struct Bounds {
  std::size_t stacks = 60'000, nodes = 400'000;
};

// What the icicle is made of: frames, a tree of them, in which stacks share their callers, and per stack its node.
class StackColumns {
 public:
  explicit StackColumns(const std::vector<DiffFrame>& frames) : frames_(&frames) {}

  [[nodiscard]] std::size_t node_count() const { return parent_.size(); }
  void add(const DiffStack& stack) {
    std::int64_t node = 0;
    for (const std::size_t frame : stack.frames) node = child_of(node, frame);
    rows_.push_back({stack.cause, node, stack.figure});
  }
  void add_rest(Cause cause, const DiffFigure& figure) { rows_.push_back({cause, kRest, figure}); }

  void write(HtmlStrings& strings, HtmlColumns& columns) const {
    write_frames(strings, columns);
    HtmlColumn& parent = columns.whole("node_parent");  // how far before it
    HtmlColumn& node_frame = columns.whole("node_frame");
    for (std::size_t i = 1; i < parent_.size(); ++i) {
      parent.add(static_cast<std::int64_t>(i) - parent_[i]);
      node_frame.add_delta(frame_[i]);
    }
    HtmlColumn& cause = columns.whole("stack_cause");
    HtmlColumn& node = columns.whole("stack_node");
    HtmlColumn& a = columns.whole("stack_a");
    HtmlColumn& b = columns.whole("stack_b");
    HtmlColumn& variance = columns.float32("stack_variance");
    for (const Row& row : rows_) {
      cause.add(static_cast<std::int64_t>(row.cause));
      node.add(row.node);
      a.add(row.figure.a);
      b.add(row.figure.b);
      variance.add_float(row.figure.variance);
    }
  }

 private:
  static constexpr std::int64_t kRest = -1;  // where the sum of those that were left out ends
  struct Row {
    Cause cause = Cause::unknown;
    std::int64_t node = 0;  // 0: nothing is known
    DiffFigure figure{};
  };

  void write_frames(HtmlStrings& strings, HtmlColumns& columns) const {
    HtmlColumn& kind = columns.whole("frame_kind");
    HtmlColumn& label = columns.whole("frame_label");
    HtmlColumn& file = columns.whole("frame_file");
    HtmlColumn& line_a = columns.whole("frame_line_a");
    HtmlColumn& line_b = columns.whole("frame_line_b");
    for (const std::size_t number : used_) {
      const DiffFrame& frame = frames_->at(number);
      kind.add(static_cast<std::int64_t>(frame.kind));
      label.add(static_cast<std::int64_t>(strings.number_of(frame.label)));
      file.add(static_cast<std::int64_t>(strings.number_of(frame.file)));
      line_a.add(frame.line_a);
      line_b.add(frame.line_b);
    }
  }

  std::int64_t child_of(std::int64_t parent, std::size_t frame) {
    const auto [number, is_first] = numbers_.try_emplace(frame, used_.size());
    if (is_first) used_.push_back(frame);
    const std::uint64_t key = static_cast<std::uint64_t>(parent) << 32 | number->second;
    const auto [known, is_new] = children_.try_emplace(key, std::ssize(parent_));
    if (is_new) {
      parent_.push_back(parent);
      frame_.push_back(static_cast<std::int64_t>(number->second));
    }
    return known->second;
  }

  const std::vector<DiffFrame>* frames_;
  std::vector<std::size_t> used_;                             // of `frames_`
  std::unordered_map<std::size_t, std::size_t> numbers_;      // in `used_`
  std::unordered_map<std::uint64_t, std::int64_t> children_;  // parent << 32 | frame
  std::vector<std::int64_t> parent_{0}, frame_{-1};           // node 0 is below the outermost frames
  std::vector<Row> rows_;
};

// The largest as they are, the rest summed per cause. Returns how many were left out.
std::size_t add_stacks(const std::vector<DiffStack>& stacks, const Bounds& bounds, StackColumns& columns) {
  std::map<Cause, DiffFigure> rest;
  std::size_t left_out = 0;
  for (std::size_t i = 0; i < stacks.size(); ++i) {
    if (i < bounds.stacks && columns.node_count() < bounds.nodes) {
      columns.add(stacks[i]);
      continue;
    }
    ++left_out;
    DiffFigure& sum = rest[stacks[i].cause];
    sum.a += stacks[i].figure.a;
    sum.b += stacks[i].figure.b;
    sum.variance += stacks[i].figure.variance;
  }
  for (const auto& [cause, figure] : rest) columns.add_rest(cause, figure);
  return left_out;
}

// As report/html/html_data.h lays it out: the length of the header, the header, columns.
class DiffPage {
 public:
  DiffPage(const Diff& diff, const DiffStyle& style) : stacks_(diff_stacks(*diff.a, *diff.b, diff.which)) {
    std::ranges::stable_sort(stacks_.stacks, std::ranges::greater{}, [](const DiffStack& stack) {
      return std::max(std::abs(stack.figure.a), std::abs(stack.figure.b));
    });
    header_ = {{"format", kDiffFormat},
               {"kind", "diff"},
               {"diff", Json::parse(render_diff_json(diff, style))},
               {"parts", {style.part_a, style.part_b}},
               {"doubts", diff_doubts(diff)},
               {"pss_estimate", diff.a->family.pss.estimate() || diff.b->family.pss.estimate()},
               {"causes", html_causes()},
               {"lines_shown", std::min(diff.lines.size(), style.top)},
               {"lines", diff.lines.size()}};
  }

  std::string packed(const Bounds& bounds) {
    StackColumns stacks(stacks_.frames);
    HtmlStrings strings;
    HtmlColumns columns;
    header_["stacks_left_out"] = add_stacks(stacks_.stacks, bounds, stacks);
    stacks.write(strings, columns);
    header_["strings"] = strings.json();
    header_["columns"] = columns.rows();
    const std::string text = header_.dump(-1, ' ', false, Json::error_handler_t::replace);
    std::string data = std::to_string(text.size()) + "\n" + text;
    columns.append_to(data);
    return gzipped(data, kPageLevel);
  }

 private:
  DiffStacks stacks_;
  Json header_;
};

}  // namespace

std::string render_diff_html(const Diff& diff, const DiffStyle& style) {
  DiffPage page(diff, style);
  Bounds bounds;
  std::string packed = page.packed(bounds);
  while (packed.size() > kMostPacked && bounds.stacks > 1) {
    bounds = {bounds.stacks / 2, bounds.nodes / 2};
    packed = page.packed(bounds);
  }
  std::string text;
  write_page(packed, [&](std::string_view piece) { text += piece; });
  return text;
}

}  // namespace whyrss
