#include "cli/kernel_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "attribute/attribute.h"
#include "cli/process_snapshot.h"
#include "collect/read/page_walk.h"
#include "collect/read/process_presence.h"
#include "decode/page_walk_reader.h"
#include "model/account.h"
#include "procfs/smaps.h"
#include "report/render/process_text.h"
#include "report/render/timeline.h"
#include "report/wording/format.h"
#include "report/wording/plural.h"
#include "support/file.h"
#include "support/proc_path.h"
#include "support/text.h"

namespace whyrss {
namespace {

constexpr std::size_t kMostProcesses = 10;  // processes, where none was named
constexpr std::size_t kHistory = 10;        // values of RSS in its chart
constexpr std::size_t kCommandColumns = 40;
constexpr std::int64_t kLeastShown = 100 * 1024;  // of a cause, in any process, for a column of its own

// What the table tells apart. Who allocated private memory is known of a traced program only.
enum Part : std::uint8_t {
  private_memory,
  shared_by_fork,
  file_cache,
  file_copies,
  shared_memory,
  stacks,
  others,
};
constexpr std::size_t kParts = 7;
constexpr std::array<const char*, kParts> kTitles{"anonymous",     "shared by fork", "file cache", "file copies",
                                                  "shared memory", "stacks",         "other"};
using PartBytes = std::array<std::int64_t, kParts>;

Part part_of(Cause cause) {
  switch (cause) {
    case Cause::unknown:
    case Cause::anonymous:
      return private_memory;
    case Cause::file_cache:
      return file_cache;
    case Cause::file_cow:
      return file_copies;
    case Cause::shared_memory:
      return shared_memory;
    case Cause::stack:
      return stacks;
    default:
      return others;
  }
}

PartBytes part_bytes_of(const Account& account) {
  PartBytes bytes{};
  for (const CauseInfo& info : kCauses) {
    const SliceList::Sum sum = account.slices.sum_of(info.cause);
    const Part part = part_of(info.cause);
    const std::int64_t shared = part == private_memory ? sum.bytes - sum.exclusive_bytes : 0;
    bytes[part] += sum.bytes - shared;
    bytes[shared_by_fork] += shared;
  }
  return bytes;
}

std::optional<std::int64_t> resident_bytes(pid_t pid) {
  constexpr std::int64_t kPageBytes = 4096;
  const auto text = read_line_file(proc_path(pid, "statm"));
  const auto pages = text ? parse_statm(*text) : std::nullopt;
  return pages ? std::optional(static_cast<std::int64_t>(pages->resident) * kPageBytes) : std::nullopt;
}

std::string cell(const std::optional<std::int64_t>& bytes) { return bytes ? mib(*bytes) : "-"; }

std::string signed_cell(const std::optional<std::int64_t>& bytes) {
  return fmt::format("{}{}", bytes.value_or(0) > 0 ? "+" : "", cell(bytes));
}

}  // namespace

struct KernelWatch::Walker {
  WalkMethods methods = probe_walk_methods();
  BackingResolver resolver;
};

struct KernelWatch::Process {
  std::uint64_t start_ticks = 0;
  std::vector<std::string> command;
  std::optional<std::int64_t> first_rss, rss, pss, uss, swap;
  std::optional<PartBytes> parts;
  std::string why_none;  // where `parts` is missing
  std::vector<std::optional<std::int64_t>> history;
};

KernelWatch::KernelWatch(std::vector<pid_t> roots) : roots_(std::move(roots)), walker_(std::make_unique<Walker>()) {}
KernelWatch::~KernelWatch() = default;

std::vector<pid_t> KernelWatch::chosen() const {
  std::vector<pid_t> pids;
  if (!roots_.empty()) {
    for (const pid_t root : roots_)
      for (const pid_t pid : tree_of(root))
        if (std::ranges::find(pids, pid) == pids.end()) pids.push_back(pid);
    return pids;
  }
  std::vector<std::pair<std::int64_t, pid_t>> sizes;
  for (const pid_t pid : all_processes())
    if (const auto bytes = resident_bytes(pid); bytes && *bytes > 0 && pid != getpid()) sizes.emplace_back(*bytes, pid);
  std::ranges::sort(sizes, std::ranges::greater{});
  sizes.resize(std::min(sizes.size(), kMostProcesses));
  for (const auto& [bytes, pid] : sizes) pids.push_back(pid);
  return pids;
}

bool KernelWatch::read() {
  const std::vector<pid_t> before = std::exchange(shown_, {});
  for (const pid_t pid : chosen()) {
    const auto stat = read_stat(pid);
    if (!stat || stat->has_ended()) continue;
    Process& process = processes_[pid];
    if (process.start_ticks != stat->start_ticks) process = {};  // the pid is another one's now
    process.start_ticks = stat->start_ticks;
    process.command = command_of(pid);
    if (process.command.empty()) process.command = {fmt::format("[{}]", stat->comm)};  // a kernel thread
    read_process(pid, process);
    if (process.rss) shown_.push_back(pid);
  }
  if (!roots_.empty())
    ended_ += static_cast<std::size_t>(
        std::ranges::count_if(before, [&](pid_t pid) { return std::ranges::find(shown_, pid) == shown_.end(); }));
  std::erase_if(processes_, [&](const auto& one) { return std::ranges::find(shown_, one.first) == shown_.end(); });
  return !shown_.empty();
}

void KernelWatch::read_process(pid_t pid, Process& process) {
  process.rss = resident_bytes(pid);
  process.pss = process.uss = process.swap = std::nullopt;
  process.parts.reset();
  process.why_none.clear();
  const auto walk = walk_pages(pid, trace::WalkTrigger::interval, walker_->methods, walker_->resolver);
  if (walk) {
    const std::vector<std::byte> payload = encode_walk(*walk);
    if (auto pages = read_walk(payload)) {
      const Account account = attribute({.vmas = std::move(pages->vmas), .runs = std::move(pages->runs)});
      process.parts = part_bytes_of(account);
      process.rss = account.rss_bytes;
    }
  } else {
    process.why_none = walk.error();
  }
  if (const auto text = read_file(proc_path(pid, "smaps_rollup")))
    if (const auto sums = parse_smaps_rollup(*text)) {
      process.pss = sums->pss_bytes;
      process.uss = sums->uss_bytes();
      process.swap = sums->swap_bytes;
    }
  if (!process.first_rss) process.first_rss = process.rss;
  process.history.push_back(process.rss);
  if (process.history.size() > kHistory) process.history.erase(process.history.begin());
}

Table KernelWatch::table() const {
  std::set<Part> columns;
  bool swaps = false;
  for (const pid_t pid : shown_) {
    const Process& process = processes_.at(pid);
    swaps |= process.swap.value_or(0) > 0;
    for (std::size_t part = 0; process.parts && part < kParts; ++part)
      if ((*process.parts)[part] >= kLeastShown) columns.insert(static_cast<Part>(part));
  }
  std::vector<Table::Column> titles{{"pid", Table::Align::right},
                                    {"RSS", Table::Align::right},
                                    {"growth", Table::Align::right},
                                    {"PSS", Table::Align::right},
                                    {"USS", Table::Align::right}};
  if (swaps) titles.push_back({"swap", Table::Align::right});
  for (const Part part : columns) titles.push_back({kTitles[part], Table::Align::right});
  titles.push_back({"over time", Table::Align::left, Table::Fit::keep});
  titles.push_back({"command"});
  Table table(std::move(titles));
  Process all;
  all.rss = all.first_rss = all.pss = all.uss = all.swap = 0;
  all.parts.emplace();
  const auto add = [&](const std::string& name, const Process& process) {
    std::vector<std::string> cells{
        name, cell(process.rss),
        signed_cell(process.rss && process.first_rss ? std::optional(*process.rss - *process.first_rss) : std::nullopt),
        cell(process.pss), cell(process.uss)};
    if (swaps) cells.push_back(cell(process.swap));
    for (const Part part : columns) cells.push_back(process.parts ? mib((*process.parts)[part]) : "-");
    cells.push_back(sparkline(process.history));
    const bool is_kernel_thread = process.command.size() == 1 && process.command.front().starts_with('[');
    const std::string command = is_kernel_thread ? printable(process.command.front()) : command_text(process.command);
    cells.push_back(shortened(command, kCommandColumns));
    table.add(std::move(cells));
  };
  const auto sum = [](std::optional<std::int64_t>& into, const std::optional<std::int64_t>& one) {
    into = into && one ? std::optional(*into + *one) : std::nullopt;  // a part of a sum is none
  };
  for (const pid_t pid : shown_) {
    const Process& process = processes_.at(pid);
    add(std::to_string(pid), process);
    sum(all.rss, process.rss);
    sum(all.first_rss, process.first_rss);
    sum(all.pss, process.pss);
    sum(all.uss, process.uss);
    sum(all.swap, process.swap);
    if (!process.parts) all.parts.reset();
    for (std::size_t part = 0; all.parts && part < kParts; ++part) (*all.parts)[part] += (*process.parts)[part];
  }
  if (shown_.size() > 1) {
    add("all", all);
  }
  return table;
}

std::vector<std::string> KernelWatch::notes() const {
  std::map<std::string, std::size_t> reasons;
  for (const pid_t pid : shown_)
    if (const Process& process = processes_.at(pid); !process.why_none.empty()) ++reasons[process.why_none];
  std::vector<std::string> notes;
  if (shown_.size() > 1) notes.emplace_back("all: RSS counts shared pages in each process, PSS once");
  if (!reasons.empty())
    notes.push_back(fmt::format("causes of {} cannot be read: {}",
                                counted(static_cast<std::size_t>(std::ranges::count_if(
                                            shown_, [&](pid_t pid) { return !processes_.at(pid).parts; })),
                                        "process"),
                                reasons.begin()->first));
  return notes;
}

}  // namespace whyrss
