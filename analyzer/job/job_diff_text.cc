#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "job/job_diff_formats.h"
#include "job/node_list.h"
#include "report/diff/diff_words.h"
#include "report/wording/format.h"
#include "report/wording/table.h"
#include "support/text.h"

namespace whyrss {
namespace {

using Align = Table::Align;

constexpr std::size_t kGroupColumns = 30, kGroupHeadlines = 3, kNamedNodes = 8;

// What many processes differ by chance adds up by its root, as they do not differ together.
std::int64_t chance_bytes(std::size_t processes) {
  return static_cast<std::int64_t>(static_cast<double>(kChanceBytes) * std::sqrt(static_cast<double>(processes)));
}

std::size_t process_count(const GroupDiff& group) {
  return std::max(group.a != nullptr ? group.a->process_count : 0, group.b != nullptr ? group.b->process_count : 0);
}

class JobDiffText {
 public:
  JobDiffText(const JobDiff& diff, const JobTextStyle& style) : diff_(diff), style_(style) {}

  std::string written() {
    head();
    totals();
    outliers();
    only("A", "B", diff_.only_a, *diff_.a);
    only("B", "A", diff_.only_b, *diff_.b);
    doubts("A", *diff_.a);
    doubts("B", *diff_.b);
    causes();
    lines();
    groups();
    nodes();
    return std::move(text_);
  }

 private:
  void heading(const std::string& title) {
    text_ += style_.markdown ? fmt::format("\n## {}\n\n", title)
                             : fmt::format("\n{}", wrapped(title, "", "  ", style_.columns));
  }
  void line(const std::string& text, bool is_strong = false) {
    const std::string_view strong = is_strong ? "**" : "";
    text_ += style_.markdown ? fmt::format("- {}{}{}\n", strong, markdown_escaped(text), strong)
                             : wrapped(text, "", "  ", style_.columns);
  }
  void remark(const std::string& text) {
    text_ += style_.markdown ? fmt::format("\n{}\n", text) : wrapped(text, "  ", "    ", style_.columns);
  }
  void table(const Table& table) { text_ += style_.markdown ? table.markdown() : table.text(style_.columns); }

  void head() {
    if (style_.markdown) text_ += "# What changed in memory\n\n";
    line(fmt::format("A: {}", printable(head_text(*diff_.a))));
    line(fmt::format("B: {}", printable(head_text(*diff_.b))));
  }

  void totals() {
    const std::size_t of_a = diff_.a->process_count, of_b = diff_.b->process_count;
    const std::string processes = of_a == 1 && of_b == 1
                                      ? "1 process each"
                                      : fmt::format("{} and {} processes", count_text(of_a), count_text(of_b));
    line(change_line(fmt::format("RSS, at the peak of each process, summed over {}", processes), diff_.rss), true);
    if (diff_.pss) line(change_line("PSS, at the peak of each process, summed", *diff_.pss), true);
    line(change_line("Peaks of the nodes, files and shared memory once, summed", diff_.once), true);
    std::size_t named = 0;
    for (const GroupDiff& group : diff_.groups) {
      if (named == kGroupHeadlines || group.a == nullptr || group.b == nullptr) continue;
      if (std::abs(group.median.change()) < kChanceBytes || process_count(group) < 2) continue;
      ++named;
      line(change_line(fmt::format("{}, median of {} and {}", group_name(*group.b), count_text(group.a->process_count),
                                   count_text(group.b->process_count)),
                       group.median),
           true);
    }
  }

  void outliers() {
    std::size_t kept = 0, shown = 0, more = 0;
    for (const OutlierDiff& outlier : diff_.outliers) {
      if (outlier.a != nullptr && outlier.b != nullptr) {
        ++kept;
      } else if (shown < style_.top) {
        ++shown;
        line(outlier_diff_text(diff_, outlier), true);
      } else {
        ++more;
      }
    }
    if (more > 0) line(fmt::format("{} more hold far more than the median of their like in one of both", more));
    if (kept > 0)
      line(fmt::format("{} far more than the median of {} like in both",
                       kept == 1 ? "1 process holds" : count_text(kept) + " processes hold",
                       kept == 1 ? "its" : "their"));
  }

  void only(const char* side, const char* other, const std::vector<const NodeSum*>& nodes, const JobView& job) {
    if (nodes.empty()) return;
    std::vector<std::string> names;
    std::size_t processes = 0;
    for (const NodeSum* node : nodes) {
      processes += node->process_count;
      if (names.size() < kNamedNodes) names.push_back(node->name);
    }
    line(fmt::format("{} of {} {} only in {}, not in {}: {}{}; the sums of {} hold {}", count_text(nodes.size()),
                     plural(job.nodes.size(), "node"), nodes.size() == 1 ? "is" : "are", side, other, join(names, ", "),
                     nodes.size() > kNamedNodes ? ", ..." : "", side,
                     processes == 1 ? "its process" : fmt::format("their {} processes", count_text(processes))),
         true);
  }

  // What may lack, as a difference could be taken for a change.
  void doubts(const char* side, const JobView& job) {
    if (!job.missing_ranks.empty())
      line(fmt::format("{}: {} not recorded: {}", side, plural(job.missing_ranks.size(), "rank"),
                       ranges_text(job.missing_ranks)));
    for (const std::string& note : job.notes) line(fmt::format("{}: {}", side, printable(note)));
    if (job.lost_events > 0 || job.lost_snapshots > 0)
      line(fmt::format("{}: {} and {} were lost", side, plural(job.lost_events, "event"),
                       plural(job.lost_snapshots, "snapshot")));
  }

  void causes() {
    heading("By cause, MiB (at the peak of each process)");
    table(cause_table(diff_.causes, diff_.rss, chance_bytes(std::max(diff_.a->process_count, diff_.b->process_count))));
  }

  void lines() {
    Table shown({{"change", Align::right},
                 {"A", Align::right},
                 {"B", Align::right},
                 {""},
                 {"cause"},
                 {"line", Align::left, Table::Fit::wrap},
                 {"of"}});
    std::size_t rows = 0, more = 0, within = 0;
    std::int64_t more_change = 0;
    for (const JobLineDiff& one : diff_.lines) {
      const DiffFigure& figure = one.line.figure;
      const GroupDiff& group = diff_.groups[one.group];
      // What is shared since fork costs nothing.
      if (one.line.cause == Cause::fork_shared || std::abs(figure.change()) < chance_bytes(process_count(group)))
        continue;
      if (figure.state() == DiffState::same) {
        ++within;
      } else if (rows >= style_.top) {
        ++more;
        more_change += figure.change();
      } else {
        ++rows;
        const std::string name = one.line.line.empty() ? "(no call recorded)" : printable(one.line.line);
        shown.add({change_text(figure), mib(figure.a), mib(figure.b), slug_of(figure.state()),
                   std::string(info(one.line.cause).title), name + moved_text(one.line),
                   shortened(group_name(group.either()), kGroupColumns)});
      }
    }
    heading("By line, MiB (at the peak of each process)");
    if (rows > 0) table(shown);
    if (rows == 0) remark("no line differs by more than its error and what chance makes");
    if (more > 0)
      remark(fmt::format("{} changed by {} together (--top)", plural(more, "more line"), growth_text(more_change)));
    if (within > 0)
      remark(fmt::format("{} changed within the error, and {} not shown", plural(within, "line"),
                         within == 1 ? "is" : "are"));
  }

  void groups() {
    heading("Processes alike, at the peak of each, MiB");
    Table rows({{"processes"},
                {"in A", Align::right},
                {"in B", Align::right},
                {"median A", Align::right},
                {"B", Align::right},
                {"change", Align::right},
                {"most A", Align::right},
                {"B", Align::right},
                {"change of sum", Align::right},
                {""}});
    for (std::size_t i = 0; i < std::min(diff_.groups.size(), style_.top); ++i) {
      const GroupDiff& group = diff_.groups[i];
      std::string name = shortened(group_name(group.either()), kNameColumns);
      if (!group.either().ranks.empty()) name += fmt::format(", rank {}", ranges_text(group.either().ranks, 3));
      const bool is_shown = std::abs(group.sum.change()) >= chance_bytes(process_count(group));
      rows.add({name, count_text(group.a != nullptr ? group.a->process_count : 0),
                count_text(group.b != nullptr ? group.b->process_count : 0), mib(group.median.a), mib(group.median.b),
                change_text(group.median), mib(group.max.a), mib(group.max.b), change_text(group.sum),
                is_shown ? slug_of(group.sum.state()) : ""});
    }
    table(rows);
    if (diff_.groups.size() > style_.top)
      remark(fmt::format("and {} of processes", plural(diff_.groups.size() - style_.top, "more kind")));
  }

  void nodes() {
    if (diff_.nodes.empty()) return;
    heading("Nodes of both, at the peak of each, MiB");
    Table rows({{"node"},
                {"together A", Align::right},
                {"B", Align::right},
                {"change", Align::right},
                {"RSS summed A", Align::right},
                {"B", Align::right},
                {"change", Align::right},
                {"PSS A", Align::right},
                {"B", Align::right},
                {"change", Align::right}});
    for (std::size_t i = 0; i < std::min(diff_.nodes.size(), style_.top); ++i) {
      const NodeDiff& node = diff_.nodes[i];
      std::string name = shortened(node.b->name, kNameColumns);
      if (node.a->name != node.b->name) name += fmt::format(" ({} in A)", shortened(node.a->name, kNameColumns));
      const bool has_pss = node.pss.a > 0 && node.pss.b > 0;
      rows.add({name, mib(node.total.a), mib(node.total.b), change_text(node.total), mib(node.rss_sum.a),
                mib(node.rss_sum.b), change_text(node.rss_sum), has_pss ? mib(node.pss.a) : "-",
                has_pss ? mib(node.pss.b) : "-", has_pss ? change_text(node.pss) : "-"});
    }
    table(rows);
    if (diff_.nodes.size() > style_.top)
      remark(fmt::format("and {} of both", plural(diff_.nodes.size() - style_.top, "more node")));
  }

  const JobDiff& diff_;
  const JobTextStyle& style_;
  std::string text_;
};

}  // namespace

std::string outlier_diff_text(const JobDiff& diff, const OutlierDiff& outlier) {
  if (outlier.a != nullptr && outlier.b != nullptr) return fmt::format("In both {}", outlier_text(*diff.b, *outlier.b));
  const bool is_new = outlier.b != nullptr;
  const std::string missing =
      outlier.is_missing ? fmt::format("; it was not recorded in {}", is_new ? "A" : "B") : std::string();
  return fmt::format("Only in {} {}{}", is_new ? "B" : "A",
                     is_new ? outlier_text(*diff.b, *outlier.b) : outlier_text(*diff.a, *outlier.a), missing);
}

std::string render_job_diff_text(const JobDiff& diff, const JobTextStyle& style) {
  return JobDiffText(diff, style).written();
}

}  // namespace whyrss
