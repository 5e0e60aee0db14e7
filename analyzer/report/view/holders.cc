#include "report/view/holders.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "report/view/blame.h"
#include "report/view/line_text.h"
#include "report/view/memory_figures.h"
#include "report/view/series.h"
#include "report/wording/format.h"

namespace whyrss {
namespace {

// A process is seen to have ended a moment after it has, and those that end together are so one after another.
constexpr double kLivedS = 0.25;
// Of those that are killed together the small ones are gone at once, a large one seconds later.
constexpr double kKilledTogetherS = 5;
// Who left by itself says when; a killed main process is seen to be gone so much later at most.
constexpr double kLeftBeforeS = 0.1;

// Page cache is taken back when memory is needed, what a fork shares is counted where it was made.
bool can_hold(Cause cause) {
  return cause != Cause::file_cache && cause != Cause::fork_shared && cause != Cause::lazy_free;
}

bool is_end_of_killed_job(const View& view) {
  if (view.recording->info.exit_signal != "SIGKILL") return false;
  const std::optional<double>& ended_s = view.recording->processes.front().ended_s;
  return ended_s && std::abs(*ended_s - view.interval.to_s) <= kLivedS;
}

bool lived_until_end(const View& view, const ProcessAccount& process) {
  if (!process.ended_s) return true;
  const bool of_killed_job = is_end_of_killed_job(view);
  if (of_killed_job && process.teardown_s && process.end_signal.empty())
    return *process.ended_s >= view.interval.to_s - kLeftBeforeS;
  const bool together = process.end_signal == "SIGKILL" && of_killed_job;
  return *process.ended_s >= view.interval.to_s - (together ? kKilledTogetherS : kLivedS);
}

// Files in memory that no process maps, all together, with the line that made most of them.
template <typename UnmappedOf>
Holder unmapped_holder(const View& view, UnmappedOf unmapped_of) {
  Holder holder{.cause = Cause::shared_memory, .line = "mapped by no process", .process_count = 1, .unmapped = true};
  std::vector<UnmappedMemory::File> files;
  for (const ProcessView& process : view.processes) {
    if (!lived_until_end(view, *process.account)) continue;
    const std::int64_t bytes = unmapped_of(process.unmapped);
    holder.bytes += bytes;
    if (const UnmappedMemory* last = last_at(process.account->unmapped, view.interval.to_s); last != nullptr)
      files.insert(files.end(), last->files.begin(), last->files.end());
    if (bytes <= holder.pid_bytes) continue;
    holder.pid = process.account->pid;
    holder.pid_bytes = bytes;
  }
  const std::vector<SiteView> sites = unmapped_sites(files);
  const std::vector<LineGrowth> lines = growth_by_line(view.recording->stacks, pointers(sites));
  if (const LineGrowth* top = top_named(lines); top != nullptr && 2 * top->bytes > holder.bytes)
    holder.line += ", made " + placed_text(*top);
  return holder;
}

// `bytes` more, of a process.
void add_process(Holder& holder, const ProcessView& process, std::int64_t bytes) {
  ++holder.process_count;
  if (bytes <= holder.pid_bytes) return;
  holder.pid = process.account->pid;
  holder.pid_bytes = bytes;
}

// Takes the sites that imports made out of a cause; returns what they have.
std::int64_t take_imports(const StackTable& stacks, Cause cause, std::vector<SiteView>& sites) {
  if (!can_be_of_imports(cause)) return 0;
  std::int64_t bytes = 0;
  std::erase_if(sites, [&](const SiteView& site) {
    if (importing_stack(stacks, cause, site) == kEmptyStack) return false;
    bytes += site.growth;
    return true;
  });
  return bytes;
}

template <typename BytesOf, typename UnmappedOf>
std::vector<Holder> holders(const View& view, BytesOf bytes_of, UnmappedOf unmapped_of) {
  std::map<std::pair<Cause, std::string>, Holder> sums;
  Holder imports{.cause = Cause::heap_live, .imports = true};
  for (const ProcessView& process : view.processes) {
    if (!lived_until_end(view, *process.account)) continue;
    std::int64_t imported = 0;
    std::map<std::pair<Cause, std::string>, std::int64_t> own;  // of this process; a runtime may have several lines
    for (const CauseView& cause : process.causes) {
      if (!can_hold(cause.cause)) continue;
      std::vector<SiteView> sites = cause.sites;
      for (SiteView& site : sites) {
        site.growth = bytes_of(site);
        // Our library and buffer are the same pages in each, and so is what libraries relocated before a fork.
        const bool inherited = cause.cause == Cause::file_cow && process.account->born_by_fork;
        if (inherited || cause.cause == Cause::whyrss) site.growth = std::min(site.growth, site.exclusive);
      }
      imported += take_imports(view.recording->stacks, cause.cause, sites);
      for (const LineGrowth& line : growth_by_line(view.recording->stacks, pointers(sites))) {
        const std::string place(line.runtime.empty() ? line.line : line.runtime);
        Holder& holder = sums[{cause.cause, place}];
        holder.cause = cause.cause;
        holder.line = place;
        const bool once = cause.cause == Cause::shared_memory;
        holder.bytes = once ? std::max(holder.bytes, line.bytes) : holder.bytes + line.bytes;
        if (!once) holder.variance += line.variance;
        own[{cause.cause, place}] += line.bytes;
      }
    }
    for (const auto& [key, bytes] : own) add_process(sums[key], process, bytes);
    imports.bytes += imported;
    if (imported > 0) add_process(imports, process, imported);
  }
  std::vector<Holder> result;
  if (Holder unmapped = unmapped_holder(view, unmapped_of); unmapped.bytes > 0) result.push_back(std::move(unmapped));
  if (imports.bytes > 0) result.push_back(std::move(imports));
  for (auto& [key, holder] : sums) {
    if (holder.bytes <= 0) continue;
    if (!is_significant(holder.bytes, holder.variance)) holder.line.clear();
    result.push_back(std::move(holder));
  }
  std::ranges::stable_sort(result, std::greater{}, &Holder::bytes);
  return result;
}

}  // namespace

std::vector<Holder> holders_at_end(const View& view) {
  return holders(
      view, [](const SiteView& site) { return site.resident; },
      [](const ReadFigure& unmapped) { return unmapped.last.value_or(0); });
}

std::vector<Holder> holders_by_growth(const View& view) {
  return holders(
      view, [](const SiteView& site) { return site.growth; },
      [](const ReadFigure& unmapped) { return unmapped.growth().value_or(0); });
}

std::string holder_text(const Holder& holder) {
  std::string text = fmt::format("{}{} {}", size_text(holder.bytes), error_text(holder.bytes, holder.variance),
                                 holder.imports ? "by imports" : info(holder.cause).title);
  if (!holder.line.empty()) text += fmt::format(" ({})", holder.line);
  if (holder.process_count > 1) text += fmt::format(" in {} processes", holder.process_count);
  return text;
}

const Holder* main_holder(const std::vector<Holder>& holders, std::int64_t least_bytes) {
  auto found = std::ranges::find(holders, false, &Holder::imports);
  if (found == holders.end() || found->bytes < least_bytes) found = holders.begin();
  return found == holders.end() || found->bytes < least_bytes ? nullptr : &*found;
}

std::string main_holder_text(const std::vector<Holder>& holders, const Holder& main) {
  const auto imports = std::ranges::find(holders, true, &Holder::imports);
  const bool more = imports != holders.end() && !main.imports && imports->bytes > main.bytes;
  return holder_text(main) + (more ? ", beside " + holder_text(*imports) : "");
}

nlohmann::ordered_json holder_evidence(const std::vector<Holder>& holders) {
  auto list = nlohmann::ordered_json::array();
  for (const Holder& holder : holders) {
    if (list.size() >= kEvidenceEntries) break;
    list.push_back({{"cause", info(holder.cause).slug},
                    {"line", holder.line},
                    {"imports", holder.imports},
                    {"bytes", holder.bytes},
                    {"pid", holder.pid},
                    {"processes", holder.process_count}});
  }
  return list;
}

}  // namespace whyrss
