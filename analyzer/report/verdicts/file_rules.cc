#include "report/verdicts/file_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <span>

#include "report/verdicts/growth_parts.h"
#include "report/verdicts/next_steps.h"
#include "report/view/blame.h"
#include "report/view/blame_sums.h"
#include "report/view/line_text.h"
#include "report/view/memory_figures.h"
#include "report/view/verdict_thresholds.h"
#include "report/wording/format.h"

namespace whyrss {
namespace {

// Of the state at a time: what was read by then, else what came with the walk that tells the state.
const DirtyFiles* dirty_at(const ProcessView& process, double time_s) {
  const auto& readings = process.account->dirty_files;
  const auto& walks = process.account->accounts;
  const auto next = std::ranges::upper_bound(walks, time_s, {}, &Account::time_s);
  if (next != walks.begin()) {
    const double walked_s = std::prev(next)->time_s;
    const double until_s =
        next == walks.end() ? walked_s + kSameMomentS : std::min(walked_s + kSameMomentS, next->time_s);
    const auto first = std::ranges::lower_bound(readings, walked_s, {}, &DirtyFiles::time_s);
    if (first != readings.end() && first->time_s < until_s) time_s = std::max(time_s, first->time_s);
  }
  const auto after = std::ranges::upper_bound(readings, time_s, {}, &DirtyFiles::time_s);
  return after == readings.begin() ? nullptr : &*std::prev(after);
}

std::int64_t bytes_of(const DirtyFiles* files, const std::string& mapping) {
  if (files == nullptr) return 0;
  const auto found = files->bytes.find(mapping);
  return found == files->bytes.end() ? 0 : found->second;
}

// Of one file, as far as it grew.
std::int64_t dirty_bytes(const ProcessView& process, const MappingGrowth& file) {
  const std::int64_t before = bytes_of(dirty_at(process, process.interval.from_s), file.mapping);
  const std::int64_t now = bytes_of(dirty_at(process, process.interval.to_s), file.mapping);
  return std::clamp<std::int64_t>(now - before, 0, file.bytes);
}

// Of one file, as far as it grew.
std::int64_t locked_bytes(const ProcessView& process, const MappingGrowth& file) {
  const DirtyFiles* now = dirty_at(process, process.interval.to_s);
  if (now == nullptr) return 0;
  const auto found = now->locked.find(file.mapping);
  return found == now->locked.end() ? 0 : std::min(found->second, file.bytes);
}

// The kernel cannot take it: no word of reclaim where that is all of it.
void report_locked(std::int64_t locked, std::int64_t growth, Verdict& verdict) {
  constexpr std::int64_t kNamedLockedBytes = 1024 * 1024;
  verdict.evidence["locked_bytes"] = locked;
  if (locked < kNamedLockedBytes) return;
  const std::string it =
      fmt::format("{} of it is locked in memory (mlock): the kernel cannot take that back", size_text(locked));
  if (!dominates(locked, growth)) {
    verdict.why += " But " + it + ".";
    return;
  }
  const std::string promise = ": reclaimable, not a leak";
  verdict.severity = Severity::info;
  verdict.headline.replace(verdict.headline.size() - promise.size(), promise.size(), "; " + it);
  verdict.why =
      "These are page-cache pages of mapped files, which the kernel takes back whenever memory is needed, but for what "
      "mlock or mlockall holds: that stays until it is unlocked or unmapped, like memory of the program's own.";
  verdict.advice = "munlock() what need not stay in memory, or count it as needed when you set a memory limit.";
}

// What files have on disk, and what they can have in the process's memory: more where a page is mapped more than once.
struct FileBound {
  std::int64_t size_bytes = 0, mapped_bytes = 0, resident_bytes = 0;

  [[nodiscard]] std::int64_t most_bytes() const { return std::max({size_bytes, mapped_bytes, resident_bytes}); }
  // Mappings are whole pages, and the file may have been cut a little since.
  [[nodiscard]] bool is_mapped_again() const { return mapped_bytes > size_bytes + size_bytes / 8; }
};

// Nothing: the size is not known, as of a file of a network.
std::optional<FileBound> bound_of(const ProcessView& process, const MappingGrowth& file) {
  std::optional<FileBound> bound;
  for (const FileSizes& sizes : process.account->file_sizes) {
    if (bound && sizes.time_s > process.interval.to_s + kSameMomentS) break;
    if (const auto found = sizes.files.find(file.mapping); found != sizes.files.end())
      bound = {.size_bytes = found->second.size_bytes, .mapped_bytes = found->second.mapped_bytes};
  }
  if (bound)
    for (const SiteView* site : file.sites) bound->resident_bytes += site->resident;
  return bound;
}

bool is_mapped_again(const ProcessView& process, const MappingGrowth& file) {
  const auto bound = bound_of(process, file);
  return bound && bound->is_mapped_again();
}

// Where growth of the cache of these files ends by itself.
void report_bound(const ProcessView& process, std::span<const MappingGrowth> files, Verdict& verdict) {
  constexpr std::int64_t kSmallBytes = 1024 * 1024;
  std::int64_t most = 0, resident = 0, size = 0;
  bool mapped_again = false;
  for (const MappingGrowth& file : files) {
    const auto bound = bound_of(process, file);
    if (!bound) return;  // it may be any
    most += bound->most_bytes();
    resident += bound->resident_bytes;
    size += bound->size_bytes;
    mapped_again |= bound->is_mapped_again();
  }
  verdict.evidence["bound_bytes"] = most;
  verdict.evidence["resident_bytes"] = resident;
  verdict.evidence["file_bytes"] = size;
  const bool is_all = most - resident < kSmallBytes;
  const bool is_one = files.size() == 1;
  const std::string name = is_one ? printable(base_name(files.front().mapping)) : "";
  if (mapped_again) {
    verdict.why += fmt::format(
        " {} {}. {} mapped more than once, {} in all{}: a page counts in RSS once for each mapping, and is in the page "
        "cache once. A further mapping would add to RSS.",
        is_one ? name + " has" : fmt::format("The {} files have", files.size()), size_text(size),
        is_one ? "It is" : "Some are", size_text(most), is_all ? " (all of that is in memory now)" : "");
    return;
  }
  const std::string whole = is_one ? "the size of " + name : fmt::format("the size of the {} files", files.size());
  verdict.why += is_all
                     ? fmt::format(" All of it is in memory now ({}, {}): it grows no further.", size_text(most), whole)
                     : fmt::format(" It ends by itself at {}, {}.", size_text(most), whole);
}

std::vector<MappingGrowth> files_of(const ProcessView& process) {
  const CauseView* cause = process.find(Cause::file_cache);
  return cause == nullptr ? std::vector<MappingGrowth>{} : growth_by_mapping(cause->sites);
}

std::int64_t dirty_bytes(const ProcessView& process) {
  std::int64_t sum = 0;
  for (const MappingGrowth& file : files_of(process)) sum += dirty_bytes(process, file);
  return sum;
}

// Takes out what is code; its growth.
std::int64_t erase_code(const ProcessAccount& process, std::vector<MappingGrowth>& files) {
  std::int64_t code = 0;
  std::erase_if(files, [&](const MappingGrowth& file) {
    if (!is_code_file(process, file.mapping)) return false;
    code += file.bytes;
    return true;
  });
  return code;
}

nlohmann::ordered_json file_evidence(const std::vector<MappingGrowth>& files) {
  auto list = nlohmann::ordered_json::array();
  for (const MappingGrowth& file : files)
    if (list.size() < kEvidenceEntries) list.push_back({{"mapping", file.mapping}, {"growth_bytes", file.bytes}});
  return list;
}

}  // namespace

void library_code(const View& view, std::vector<Verdict>& verdicts) {
  for (const ProcessView& process : view.processes) {
    std::vector<MappingGrowth> files = files_of(process);
    std::erase_if(files, [&](const MappingGrowth& file) { return !is_code_file(*process.account, file.mapping); });
    std::int64_t growth = 0, locked = 0;
    for (const MappingGrowth& file : files) growth += file.bytes;
    for (const MappingGrowth& file : files) locked += locked_bytes(process, file);
    if (files.empty() || !is_worth_naming(growth, process)) continue;
    Verdict verdict{.id = "library-code", .severity = Severity::ok, .pid = process.account->pid, .bytes = growth};
    const std::string name = printable(base_name(files.front().mapping));
    verdict.headline = files.size() == 1
                           ? fmt::format("{} code of {}: reclaimable, not a leak", size_text(growth), name)
                           : fmt::format("{} code of {} libraries, {} {} ({}): reclaimable, not a leak",
                                         size_text(growth), files.size(), most_or_largest(files.front().bytes, growth),
                                         name, size_text(files.front().bytes));
    verdict.why =
        "Pages of libraries and of the program itself, in the page cache. All processes that use a library share them, "
        "and the kernel takes them back whenever memory is needed.";
    verdict.advice = "Nothing to fix. RSS counts them in every process; PSS and a cgroup's anonymous memory do not.";
    verdict.evidence["code_bytes"] = growth;
    report_locked(locked, growth, verdict);
    verdict.evidence["file_count"] = files.size();
    verdict.evidence["files"] = file_evidence(files);
    verdicts.push_back(std::move(verdict));
  }
}

void file_cache_growth(const View& view, std::vector<Verdict>& verdicts) {
  for (const ProcessView& process : view.processes) {
    const CauseView* cause = process.find(Cause::file_cache);
    if (cause == nullptr || !is_worth_naming(cause->rss.growth(), process)) continue;
    std::vector<MappingGrowth> files = growth_by_mapping(cause->sites);
    const std::int64_t code = erase_code(*process.account, files);
    const std::int64_t growth = cause->rss.growth() - code, dirty = dirty_bytes(process);
    if (files.empty() || !is_worth_naming(growth, process)) continue;
    const MappingGrowth& top = files.front();
    if (dominates(dirty, growth) && is_worth_naming(dirty, process)) continue;  // file-dirty-growth says more about it
    const std::vector<LineGrowth> lines = growth_by_line(view.recording->stacks, top.sites);
    const std::vector<LineGrowth> readers = growth_by_touch(view.recording->stacks, top.sites);
    Verdict verdict{.id = "file-cache-growth", .severity = Severity::ok, .pid = process.account->pid};
    const std::string name = printable(base_name(top.mapping));
    const char* const touched = touch_verb(*view.recording, Cause::file_cache, top.mapping);
    if (dominates(top.bytes, growth)) {
      verdict.bytes = top.bytes;
      verdict.headline = fmt::format("{} file cache of {}{}{}: reclaimable, not a leak", size_text(top.bytes), name,
                                     is_mapped_again(process, top) ? ", mapped more than once" : "",
                                     top_named(lines) != nullptr ? kept_where(lines, top.bytes, "mapped", touched)
                                                                 : kept_where(readers, top.bytes, touched));
    } else {
      verdict.bytes = growth;
      verdict.headline =
          fmt::format("{} file cache of {} files, {} {} ({}): reclaimable, not a leak", size_text(growth), files.size(),
                      most_or_largest(top.bytes, growth), name, size_text(top.bytes));
    }
    verdict.why =
        "These are page-cache pages of mapped files. They count in RSS while they are mapped, but the kernel takes "
        "them back whenever memory is needed (newly written ones once they are on disk), before it kills anybody.";
    verdict.advice =
        "Nothing to fix. If a limit that counts RSS gets in the way, map the file in windows, call "
        "madvise(MADV_DONTNEED) on what was read, or have the limit count PSS or a cgroup's anonymous memory.";
    if (dominates(top.bytes, growth) && is_mapped_again(process, top))
      verdict.advice += " Where the program maps it once and passes that on, it counts once.";
    verdict.advice += next_steps(view).prove;
    verdict.evidence["growth_bytes"] = cause->rss.growth();
    verdict.evidence["library_bytes"] = code;
    verdict.evidence["dirty_bytes"] = dirty;
    std::int64_t locked = 0;
    for (const MappingGrowth& file : files) locked += locked_bytes(process, file);
    report_locked(locked, growth, verdict);
    // Of what the headline tells.
    report_bound(process, std::span(files).first(dominates(top.bytes, growth) ? 1 : files.size()), verdict);
    verdict.evidence["file_count"] = files.size();
    verdict.evidence["files"] = file_evidence(files);
    verdict.evidence["lines"] = line_evidence(lines);
    verdict.evidence["read_by"] = line_evidence(readers);
    verdicts.push_back(std::move(verdict));
  }
}

void file_dirty_growth(const View& view, std::vector<Verdict>& verdicts) {
  for (const ProcessView& process : view.processes) {
    const std::int64_t dirty = dirty_bytes(process);
    if (!is_worth_naming(dirty, process)) continue;
    std::vector<std::pair<std::int64_t, MappingGrowth>> files;
    for (MappingGrowth& file : files_of(process))
      if (const std::int64_t bytes = dirty_bytes(process, file); bytes > 0) files.emplace_back(bytes, std::move(file));
    std::ranges::stable_sort(files, [](const auto& a, const auto& b) { return a.first > b.first; });
    const auto& [top_bytes, top] = files.front();
    const std::vector<LineGrowth> lines = growth_by_line(view.recording->stacks, top.sites);
    const std::vector<LineGrowth> writers = growth_by_touch(view.recording->stacks, top.sites);
    Verdict verdict{.id = "file-dirty-growth", .pid = process.account->pid, .bytes = dirty};
    const std::string name = printable(base_name(top.mapping));
    const std::string what = dominates(top_bytes, dirty)
                                 ? fmt::format("{}{}", name, kept_where(lines, top.bytes, "mapped", "touched"))
                                 : fmt::format("{} files, {} {} ({})", files.size(), most_or_largest(top_bytes, dirty),
                                               name, size_text(top_bytes));
    verdict.headline = fmt::format("{} of {} not on disk yet: the kernel writes it back, then it is reclaimable",
                                   size_text(dirty), what);
    verdict.why = fmt::format(
        "Pages of files that are mapped shared and for writing, and newer than the disk. They count in RSS as other "
        "file pages do, but the kernel can take them back only once they are written, which it begins by itself about "
        "30 s after the change. {} of other file pages count too: how much of that was written with write() and waits "
        "for the disk as well is not known.",
        size_text(std::max<std::int64_t>(process.find(Cause::file_cache)->rss.last - dirty, 0)));
    verdict.advice =
        "Not a leak. If a memory limit makes the program wait for the disk, write back after each part: mmap.flush(), "
        "numpy.memmap.flush(), msync(MS_SYNC); vm.dirty_background_bytes makes the kernel begin earlier.";
    verdict.evidence["dirty_bytes"] = dirty;
    auto list = nlohmann::ordered_json::array();
    for (const auto& [bytes, file] : files)
      if (list.size() < kEvidenceEntries) list.push_back({{"mapping", file.mapping}, {"dirty_bytes", bytes}});
    verdict.evidence["files"] = std::move(list);
    verdict.evidence["lines"] = line_evidence(lines);
    verdict.evidence["touched_by"] = line_evidence(writers);
    verdicts.push_back(std::move(verdict));
  }
}

}  // namespace whyrss
