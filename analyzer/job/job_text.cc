#include "job/job_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "job/node_list.h"
#include "report/view/blame.h"
#include "report/wording/format.h"
#include "report/wording/plural.h"
#include "report/wording/table.h"
#include "support/text.h"

namespace whyrss {
namespace {

using Align = Table::Align;

constexpr std::int64_t kShownBytes = 1024 * 1024;  // causes and verdicts below are left out
constexpr double kNearLimit = 0.8;

std::string times_text(std::int64_t bytes, std::int64_t median) {
  if (median <= 0) return "";
  return fmt::format("{:.1f} times the median", static_cast<double>(bytes) / static_cast<double>(median));
}

std::string percent_text(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? fmt::format("{:.0f} %", 100 * static_cast<double>(part) / static_cast<double>(whole)) : "-";
}

// As many as there should be, where that is known.
std::size_t rank_count(const JobView& job) {
  return std::max(job.ranks.size(), static_cast<std::size_t>(job.world_size.value_or(0)));
}

// Of memory without a recorded stack and a mapping the table of causes says as much.
bool is_named(const GroupLine& line) { return !line.line.text.empty() || !line.line.mapping.empty(); }

class Headlines {
 public:
  Headlines(const JobView& job, std::size_t top) : job_(job), top_(top) {}

  std::vector<JobHeadline> take() {
    for (std::size_t i = 0; i < std::min(job_.outliers.size(), top_); ++i)
      add(Severity::warning, outlier_text(job_, job_.outliers[i]));
    if (job_.outliers.size() > top_)
      add(Severity::warning,
          fmt::format("{} more hold far more than the median of their like", count_text(job_.outliers.size() - top_)));
    limits();
    if (!job_.missing_ranks.empty()) add(Severity::warning, missing_ranks_text());
    for (const JobGroup& group : job_.groups)
      for (const GroupVerdict& verdict : group.verdicts)
        if (verdict.severity >= Severity::info || verdict.bytes.max >= kShownBytes)
          add(verdict.severity, verdict_text(group, verdict));
    if (list_.empty()) add(Severity::ok, "nothing stands out");
    std::ranges::stable_sort(list_, std::ranges::greater{}, &JobHeadline::severity);
    return std::move(list_);
  }

 private:
  void add(Severity severity, std::string text) { list_.push_back({severity, std::move(text)}); }

  void limits() {
    std::size_t near = 0;
    for (const NodeSum& node : job_.nodes) {
      if (node.oom_killed > 0)
        add(Severity::problem,
            fmt::format("{}: the kernel killed {} for lack of memory", node.name, plural(node.oom_killed, "process")));
      if (!node.limit || static_cast<double>(node.total()) < kNearLimit * static_cast<double>(*node.limit)) continue;
      if (++near > top_) continue;
      add(Severity::warning, fmt::format("{}: {} of {} ({}), shared memory and files counted once", node.name,
                                         size_text(node.total()), size_text(*node.limit),
                                         node.limit_is_group ? "limit of its memory cgroup" : "memory of the machine"));
    }
    if (near > top_) add(Severity::warning, fmt::format("{} near their limit", plural(near - top_, "more node")));
  }

  [[nodiscard]] std::string missing_ranks_text() const {
    return fmt::format("{} of {} ranks {} not recorded: {}", count_text(job_.missing_ranks.size()),
                       count_text(static_cast<std::uint64_t>(job_.world_size.value_or(0))),
                       job_.missing_ranks.size() == 1 ? "was" : "were", ranges_text(job_.missing_ranks));
  }

  [[nodiscard]] std::string verdict_text(const JobGroup& group, const GroupVerdict& verdict) const {
    if (verdict.process_count == 1) return fmt::format("{}: {}", label_text(verdict.most), verdict.headline);
    const std::string who = verdict.ranks.size() > 1 ? fmt::format("{} of {} ranks", count_text(verdict.ranks.size()),
                                                                   count_text(rank_count(job_)))
                                                     : plural(verdict.process_count, "process");
    return fmt::format("{} of {}: {}, median {}, most {} ({}): {}", who, group.name, verdict.id,
                       size_text(verdict.bytes.median), size_text(verdict.bytes.max), label_text(verdict.most),
                       verdict.headline);
  }

  const JobView& job_;
  std::size_t top_;
  std::vector<JobHeadline> list_;
};

class JobText {
 public:
  JobText(const JobView& job, const JobTextStyle& style) : job_(job), style_(style) {}

  std::string written() {
    head();
    answer();
    groups();
    lines();
    nodes();
    files();
    notes();
    return std::move(text_);
  }

 private:
  void heading(const std::string& title) {
    text_ += style_.markdown ? fmt::format("\n### {}\n\n", title)
                             : fmt::format("\n{}", wrapped(title, "", "  ", style_.columns));
  }
  void line(const std::string& text, const std::string& rest = "    ") {
    text_ +=
        style_.markdown ? fmt::format("- {}\n", markdown_escaped(text)) : wrapped(text, "  ", rest, style_.columns);
  }
  void table(const Table& table) { text_ += style_.markdown ? table.markdown() : table.text(style_.columns); }

  void head() {
    const std::string text = head_text(job_);
    text_ +=
        style_.markdown ? fmt::format("## {}\n\n", markdown_escaped(text)) : wrapped(text, "", "  ", style_.columns);
  }

  void answer() {
    for (const JobHeadline& headline : job_headlines(job_, style_.top))
      line(fmt::format("{:<8} {}", slug(headline.severity), headline.text), std::string(11, ' '));
  }

  void groups() {
    heading("Processes alike, at the peak of each, in MiB");
    Table table({{"processes"},
                 {"of"},
                 {"median", Align::right},
                 {"p95", Align::right},
                 {"most", Align::right},
                 {"sum", Align::right}});
    for (std::size_t i = 0; i < std::min(job_.groups.size(), style_.top); ++i) {
      const JobGroup& group = job_.groups[i];
      const auto add = [&](const std::string& name, const std::string& of, const Spread& spread) {
        table.add({name, of, mib(spread.median), mib(spread.p95), mib(spread.max), mib(spread.sum)});
      };
      std::string name = shortened(group_name(group), kNameColumns);
      if (!group.ranks.empty()) name += fmt::format(", rank {}", ranges_text(group.ranks, 3));
      add(name, plural(group.process_count, "process"), group.rss_peak);
      for (const GroupCause& cause : group.causes)
        if (cause.at_peak.max >= kShownBytes) add("", std::string(info(cause.cause).title), cause.at_peak);
    }
    this->table(table);
    if (job_.groups.size() > style_.top)
      line(fmt::format("and {} of processes", plural(job_.groups.size() - style_.top, "more kind")));
  }

  void lines() {
    struct Row {
      const JobGroup* group;
      const GroupLine* line;
    };
    std::vector<Row> rows;
    for (const JobGroup& group : job_.groups)
      for (const GroupLine& line : group.lines)
        if (is_named(line)) rows.push_back({&group, &line});
    const std::size_t shown = std::min(rows.size(), style_.top);
    std::ranges::partial_sort(rows, rows.begin() + static_cast<std::ptrdiff_t>(shown), std::greater<>(),
                              [](const Row& row) { return row.line->sum; });
    rows.resize(shown);
    if (rows.empty()) return;
    heading("Lines with the most memory, at the peak of each process, in MiB");
    Table table({{"line", Align::left, Table::Fit::wrap},
                 {"cause"},
                 {"of"},
                 {"median", Align::right},
                 {"most", Align::right},
                 {"sum", Align::right},
                 {"at most", Align::right}});
    for (const Row& row : rows)
      table.add({line_text(row.line->line), std::string(info(row.line->cause).title),
                 fmt::format("{} {}", count_text(row.line->process_count), row.group->name), mib(row.line->median),
                 mib(row.line->most), mib(row.line->sum), mib(row.line->sum + row.line->error)});
    this->table(table);
  }

  void nodes() {
    heading("Nodes, nearest to their limit first, in MiB");
    Table table({{"node"},
                 {"processes", Align::right},
                 {"own", Align::right},
                 {"files once", Align::right},
                 {"shared once", Align::right},
                 {"together", Align::right},
                 {"limit", Align::right},
                 {"of it", Align::right},
                 {"RSS summed", Align::right}});
    for (std::size_t i = 0; i < std::min(job_.nodes.size(), style_.top); ++i) {
      const NodeSum& node = job_.nodes[i];
      table.add({shortened(node.name, kNameColumns), count_text(node.process_count), mib(node.private_peak),
                 mib(node.files_once), mib(node.shared_once), mib(node.total()), node.limit ? mib(*node.limit) : "-",
                 percent_text(node.total(), node.limit.value_or(0)), mib(node.rss_sum_peak)});
    }
    this->table(table);
    if (job_.nodes.size() > style_.top)
      line(fmt::format("and {}", plural(job_.nodes.size() - style_.top, "more node")));
  }

  void files() {
    std::vector<const SharedFile*> shared;
    for (const SharedFile& file : job_.files)
      if (file.process_count > file.node_count && file.rss_sum >= kShownBytes && shared.size() < style_.top)
        shared.push_back(&file);
    if (shared.empty()) return;
    heading("File cache that several processes of a node map, in MiB");
    Table table({{"file"},
                 {"processes", Align::right},
                 {"nodes", Align::right},
                 {"RSS summed", Align::right},
                 {"once a node", Align::right}});
    for (const SharedFile* file : shared)
      table.add({shortened(file->mapping, kNameColumns), count_text(file->process_count), count_text(file->node_count),
                 mib(file->rss_sum), mib(file->once)});
    this->table(table);
  }

  void notes() {
    heading("What is missing");
    for (const std::string& note : missing_from(job_)) line(note);
  }

  const JobView& job_;
  const JobTextStyle& style_;
  std::string text_;
};

}  // namespace

std::string label_text(const ProcessLabel& label) {
  return label.rank ? fmt::format("rank {}", *label.rank) : fmt::format("pid {} on {}", label.pid, label.node);
}

std::string line_text(const JobLine& line) {
  if (line.mapping.empty()) return line.text.empty() ? "(no call recorded)" : line.text;
  return line.text.empty() ? base_name(line.mapping) : fmt::format("{} ({})", base_name(line.mapping), line.text);
}

std::string outlier_text(const JobView& job, const Outlier& outlier) {
  const JobGroup& group = job.groups[outlier.group];
  std::string text = outlier.process.rank
                         ? fmt::format("rank {} of {}", *outlier.process.rank, count_text(rank_count(job)))
                         : fmt::format("pid {} on {}, one of {},", outlier.process.pid, outlier.process.node,
                                       count_text(group.process_count));
  const std::string times = times_text(outlier.held, outlier.median);
  text += fmt::format(" holds {}", times.empty() ? size_text(outlier.held) : times);
  if (outlier.has_line) text += fmt::format(": {}", line_text(outlier.line));
  text += fmt::format(" ({}, median {}", size_text(outlier.held), size_text(outlier.median));
  if (outlier.has_line)
    text += fmt::format("; there {} {}, median {}", size_text(outlier.line_bytes), info(outlier.cause).title,
                        size_text(outlier.line_median));
  return text + ")";
}

std::string count_text(std::uint64_t count) {
  return count < 1000 ? fmt::format("{}", count) : fmt::format("{},{:03}", count_text(count / 1000), count % 1000);
}

std::string plural(std::uint64_t count, std::string_view word) {
  return fmt::format("{} {}", count_text(count), in_number(count, word));
}

std::string group_name(const JobGroup& group) { return group.name + (group.is_worker ? ", its workers" : ""); }

std::string head_text(const JobView& job) {
  std::string text = job.jobs.empty() ? printable(job.path) : fmt::format("job {}", join(job.jobs, ", "));
  text += ": ";
  if (!job.ranks.empty()) text += plural(job.ranks.size(), "rank") + " on ";
  return text + fmt::format("{}, {} in {}, from {}", plural(job.nodes.size(), "node"),
                            plural(job.process_count, "process"), plural(job.recording_count, "recording"),
                            job.started);
}

std::vector<JobHeadline> job_headlines(const JobView& job, std::size_t top) { return Headlines(job, top).take(); }

std::vector<std::string> missing_from(const JobView& job) {
  std::vector<std::string> list;
  for (const std::string& note : job.notes) list.push_back(printable(note));
  if (job.lost_events > 0 || job.lost_snapshots > 0)
    list.push_back(
        fmt::format("{} and {} were lost", plural(job.lost_events, "event"), plural(job.lost_snapshots, "snapshot")));
  if (!job.missing_ranks.empty()) list.emplace_back("the ranks that are named at the top");
  if (list.empty())
    list.emplace_back(job.expected_nodes
                          ? "nothing: all nodes are there, and all recordings are complete"
                          : "nothing that is known: which nodes there should be is not known (merge --nodes)");
  return list;
}

std::string render_job_text(const JobView& job, const JobTextStyle& style) { return JobText(job, style).written(); }

}  // namespace whyrss
