#include "report/verdicts/unmapped_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "report/view/line_text.h"
#include "report/view/memory_figures.h"
#include "report/view/process_times.h"
#include "report/view/series.h"
#include "report/view/verdict_thresholds.h"
#include "report/wording/format.h"

namespace whyrss {
namespace {

constexpr std::string_view kMemfd = "/memfd:", kDeletedSuffix = " (deleted)";
constexpr double kStaysShare = 0.8;     // of the growth up to the peak
constexpr std::size_t kFilesNamed = 2;  // in the headline
constexpr double kReadAgainS = 0.8;     // readings come every 0.4 s while nothing changes

// What was counted at one process.
struct UnmappedShare {
  const ProcessAccount* process = nullptr;
  const UnmappedMemory* unmapped = nullptr;
};

std::vector<UnmappedShare> shares_at(const View& view, double time_s) {
  std::vector<UnmappedShare> shares;
  for (const ProcessAccount& process : view.recording->processes) {
    const UnmappedMemory* last = is_there(process, time_s) ? last_at(process.unmapped, time_s) : nullptr;
    if (last != nullptr && last->bytes.value_or(0) > 0) shares.push_back({&process, last});
  }
  std::ranges::stable_sort(
      shares, [](const UnmappedShare& a, const UnmappedShare& b) { return *a.unmapped->bytes > *b.unmapped->bytes; });
  return shares;
}

std::string shown_name(std::string_view name) {
  if (name.ends_with(kDeletedSuffix)) name.remove_suffix(kDeletedSuffix.size());
  if (name.starts_with(kMemfd)) return fmt::format("memfd {}", printable(std::string(name.substr(kMemfd.size()))));
  return printable(std::string(name));
}

struct Files {
  std::int64_t count = 0;
  std::vector<UnmappedMemory::File> largest;

  [[nodiscard]] bool any_is(std::string_view part) const {
    return std::ranges::any_of(largest, [&](const auto& file) { return file.name.find(part) != std::string::npos; });
  }
};

Files files_of(const std::vector<UnmappedShare>& shares) {
  Files files;
  for (const UnmappedShare& share : shares) {
    files.count += share.unmapped->count;
    files.largest.insert(files.largest.end(), share.unmapped->files.begin(), share.unmapped->files.end());
  }
  std::ranges::stable_sort(files.largest, std::ranges::greater{}, &UnmappedMemory::File::bytes);
  return files;
}

std::string files_text(const Files& files) {
  if (files.largest.empty()) return "";
  if (files.count == 1) return ": " + shown_name(files.largest.front().name);
  std::string text = files.count > static_cast<std::int64_t>(kFilesNamed)
                         ? fmt::format(" in {} files, the largest", files.count)
                         : ":";
  const std::size_t named =
      files.count > static_cast<std::int64_t>(kFilesNamed) ? 1 : std::min(kFilesNamed, files.largest.size());
  for (std::size_t i = 0; i < named; ++i)
    text += fmt::format("{} {} ({})", i == 0 ? "" : ",", shown_name(files.largest[i].name),
                        size_text(files.largest[i].bytes));
  return text;
}

bool has_name(const UnmappedMemory::File& file) {
  return file.name.starts_with('/') && !file.name.starts_with(kMemfd) && !file.name.ends_with(kDeletedSuffix);
}

// Files with a name outlive who made them: what was there when that process was read last, at its end, and no other one
// lived long enough to be counted with it.
std::int64_t unread_since_end(const View& view, const ProcessAccount& process) {
  const auto ended_s = there_until(process);
  const UnmappedMemory* last = last_at(process.unmapped, view.interval.to_s);
  if (!ended_s || *ended_s >= view.interval.to_s || last == nullptr) return 0;
  const double read_s = *ended_s + kReadAgainS;
  const bool is_read = std::ranges::any_of(view.recording->processes, [&](const ProcessAccount& other) {
    return other.born_s < read_s && there_until(other).value_or(view.recording->info.duration_s) >= read_s;
  });
  if (is_read) return 0;
  std::int64_t bytes = 0;
  for (const UnmappedMemory::File& file : last->files)
    if (has_name(file)) bytes += file.bytes;
  return bytes;
}

// What was left behind, where that is known and the end is shown.
const LeftMemory* left_behind(const View& view) {
  const std::optional<LeftMemory>& left = view.recording->info.left_files;
  return left && view.interval.to_s >= whole_life(*view.recording).to_s ? &*left : nullptr;
}

std::string end_text(const View& view, const std::vector<UnmappedShare>& shares, std::int64_t last) {
  if (left_behind(view) != nullptr && last < kNamedUnmappedBytes) return "; gone at the end";
  std::int64_t unread = 0;
  for (const UnmappedShare& share : shares) unread += unread_since_end(view, *share.process);
  if (unread >= kNamedUnmappedBytes)
    return fmt::format("; whether {} of it stayed is not known: no process lived on to be read with it",
                       size_text(unread));
  return last < kNamedUnmappedBytes ? "; gone at the end" : fmt::format("; {} at the end", size_text(last));
}

std::string advice_for(const Files& files) {
  std::string advice = "Close and unlink each file as soon as its last reader is done with it.";
  if (files.any_is("torch_"))
    advice +=
        " Files named torch_ are batches on their way from DataLoader workers: a lower prefetch_factor or fewer "
        "workers keep fewer.";
  if (files.any_is("joblib_memmapping"))
    advice += " joblib keeps its arrays there until its pool of workers ends; Parallel(max_nbytes=None) makes none.";
  if (files.any_is("/SYSV")) advice += " A System V segment stays until shmctl(IPC_RMID) or ipcrm -m.";
  return advice;
}

}  // namespace

void shared_memory_unmapped(const View& view, std::vector<Verdict>& verdicts) {
  const ReadFigure& unmapped = view.family.unmapped;
  const std::int64_t first = unmapped.first.value_or(0), last = unmapped.last.value_or(0),
                     peak = unmapped.peak.value_or(0);
  const std::int64_t growth = peak - first, rss_growth = std::max<std::int64_t>(view.family.rss_sum.growth(), 0);
  if (growth < kNamedGrowthBytes || static_cast<double>(growth) < kNamedGrowthShare * static_cast<double>(rss_growth))
    return;
  const bool stays = static_cast<double>(last - first) >= kStaysShare * static_cast<double>(growth);
  const double time_s = stays ? view.interval.to_s : view.family.unmapped_peak_s;
  const std::vector<UnmappedShare> shares = shares_at(view, time_s);
  const Files files = files_of(shares);
  std::int64_t listed_bytes = 0, mapped_bytes = 0;
  for (const UnmappedMemory::File& file : files.largest) {
    listed_bytes += file.bytes;
    if (file.is_mapped_later) mapped_bytes += file.bytes;  // it counts there as shared memory
  }
  if (!stays && 2 * mapped_bytes > listed_bytes) return;
  Verdict verdict{.id = "shared-memory-unmapped", .bytes = stays ? last - first : growth};
  if (!shares.empty()) verdict.pid = shares.front().process->pid;
  for (std::size_t i = 1; i < shares.size(); ++i) verdict.covered_pids.push_back(shares[i].process->pid);
  const std::vector<SiteView> sites = unmapped_sites(files.largest);
  const std::vector<LineGrowth> lines = growth_by_line(view.recording->stacks, pointers(sites));
  // Those that are not listed may be of other lines; where the listed are of one, it is named without a figure.
  const bool lists_all = files.count <= static_cast<std::int64_t>(files.largest.size());
  const std::int64_t made_bytes = !lists_all ? listed_bytes : stays ? last : peak;
  verdict.headline = fmt::format("{} shared memory that no process maps{}{}{}", size_text(verdict.bytes),
                                 kept_where(lines, made_bytes, "made"),
                                 stays ? "" : fmt::format(", at {}", seconds_text(time_s)), files_text(files));
  const LeftMemory* left = left_behind(view);
  if (left != nullptr && left->bytes >= kNamedUnmappedBytes) {
    verdict.severity = Severity::warning;
    verdict.headline += fmt::format("; {} stay after the end of the job", size_text(left->bytes));
  } else if (!stays) {
    verdict.headline += end_text(view, shares, last);
  }
  verdict.why =
      "Files in memory (memfd, POSIX shared memory, tmpfs, System V segments) take memory until they are closed and "
      "unlinked, mapped or not. No RSS and no PSS counts what is not mapped; a memory cgroup and its limit do. Counted "
      "are files that these processes have or had open, or whose names have one of their numbers.";
  verdict.advice = advice_for(files);
  verdict.evidence["first_bytes"] = first;
  verdict.evidence["last_bytes"] = last;
  verdict.evidence["peak_bytes"] = peak;
  verdict.evidence["time_s"] = time_s;
  verdict.evidence["file_count"] = files.count;
  verdict.evidence["made_at"] = line_evidence(lines);
  auto list = nlohmann::ordered_json::array();
  for (const UnmappedMemory::File& file : files.largest)
    if (list.size() < kEvidenceEntries) list.push_back({{"name", file.name}, {"bytes", file.bytes}});
  verdict.evidence["files"] = std::move(list);
  auto processes = nlohmann::ordered_json::array();
  for (const UnmappedShare& share : shares)
    if (processes.size() < kEvidenceEntries)
      processes.push_back({{"pid", share.process->pid}, {"bytes", *share.unmapped->bytes}});
  verdict.evidence["processes"] = std::move(processes);
  verdicts.push_back(std::move(verdict));
}

void shared_memory_left(const View& view, std::vector<Verdict>& verdicts) {
  const LeftMemory* left = left_behind(view);
  if (left == nullptr || left->bytes < kNamedGrowthBytes) return;
  if (std::ranges::find(verdicts, "shared-memory-unmapped", &Verdict::id) != verdicts.end()) return;  // it says so
  std::vector<UnmappedMemory::File> known;
  std::int64_t known_bytes = 0, most_bytes = 0;
  std::optional<int> made_most;
  for (const ProcessAccount& process : view.recording->processes) {
    const std::int64_t before = known_bytes;
    for (const UnmappedMemory& reading : process.unmapped)
      for (const UnmappedMemory::File& file : reading.files) {
        const auto is_it = [&](const UnmappedMemory::File& other) { return other.name == file.name; };
        if (!has_name(file) || std::ranges::any_of(known, is_it)) continue;
        known.push_back(file);
        known_bytes += file.bytes;
      }
    if (known_bytes - before <= most_bytes) continue;
    most_bytes = known_bytes - before;
    made_most = process.pid;
  }
  const std::vector<SiteView> sites = unmapped_sites(known);
  const std::vector<LineGrowth> lines = growth_by_line(view.recording->stacks, pointers(sites));
  Verdict verdict{.id = "shared-memory-left", .severity = Severity::warning, .pid = made_most, .bytes = left->bytes};
  const std::string name = shown_name(left->largest);
  verdict.headline =
      fmt::format("{} shared memory left behind{}{}: it stays until it is removed", size_text(left->bytes),
                  known.empty() ? "" : kept_where(lines, known_bytes, "made"),
                  left->count == 1 ? ", " + name : fmt::format(", {} files, the largest {}", left->count, name));
  verdict.why =
      "These were there when the last process of the job had ended. They take memory of the machine, or of its "
      "container, that no process shows.";
  verdict.advice =
      "Unlink each as soon as its last reader has it open (SharedMemory.unlink(), shm_unlink(), shmctl(IPC_RMID)); "
      "what is there now goes by rm, or ipcrm.";
  verdict.evidence["bytes"] = left->bytes;
  verdict.evidence["file_count"] = left->count;
  verdict.evidence["largest"] = left->largest;
  verdict.evidence["made_at"] = line_evidence(lines);
  verdicts.push_back(std::move(verdict));
}

}  // namespace whyrss
