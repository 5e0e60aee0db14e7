#include "report/render/accounting_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "report/verdicts/lazy_free_rule.h"
#include "report/verdicts/unmapped_rule.h"
#include "report/view/memory_accounting.h"
#include "report/wording/format.h"
#include "report/wording/optional_json.h"

namespace whyrss {
namespace {

using Json = nlohmann::ordered_json;
using Align = Table::Align;

std::optional<std::int64_t> held(const CgroupReading& reading) {
  if (!reading.anon_bytes) return std::nullopt;
  return *reading.anon_bytes + reading.shmem_bytes.value_or(0);
}

std::string percent_text(const View& view, std::int64_t rss) {
  const auto percent = memory_percent(view, rss);
  return percent ? fmt::format("{:.1f} %", *percent) : "-";
}

Json percent_json(const View& view, std::int64_t rss) {
  const auto percent = memory_percent(view, rss);
  return percent ? Json(*percent) : Json(nullptr);
}

// The last reading up to the moment; a group is read less often than processes.
const CgroupReading* cgroup_at(const View& view, double time_s) {
  const auto& group = view.recording->info.cgroup;
  const CgroupReading* found = nullptr;
  if (!group) return found;
  for (const CgroupReading& reading : group->readings)
    if (reading.time_s <= time_s || found == nullptr) found = &reading;
  return found;
}

void add_cgroup(const View& view, double time_s, Table& table) {
  const CgroupReading* reading = cgroup_at(view, time_s);
  if (reading == nullptr) return;
  table.add({"memory cgroup, usage", mib_or_dash(reading->usage_bytes),
             mib_or_dash(view.recording->info.cgroup->peak_bytes),
             "all that runs in it; file cache by who read it first"});
  const bool lazy = lazy_free_at(*view.recording, time_s) >= kNamedLazyBytes;
  table.add({"  anonymous and shared memory of it", mib_or_dash(held(*reading)), "-",
             std::string("what the limit cannot take back") + (lazy ? ", but for what was given up" : "")});
  table.add({"  file cache of it", mib_or_dash(reading->file_bytes), "-", "what it can"});
}

}  // namespace

std::string accounting_title(const View& view) {
  const auto& peak = view.family.accounting.peak;
  if (!peak) return "";
  const std::string left_out = peak->left_out == 0 ? ""
                                                   : fmt::format(" ({} small process{} not read then)", peak->left_out,
                                                                 peak->left_out == 1 ? " was" : "es were");
  return fmt::format("What other tools show, at {} when the processes together had most{}, MiB",
                     seconds_text(peak->time_s), left_out);
}

Table accounting_table(const View& view) {
  Table table({{"tool and figure", Align::left, Table::Fit::wrap},
               {"then", Align::right},
               {"largest", Align::right},
               {"what it counts", Align::left, Table::Fit::wrap}});
  const AccountingView& accounting = view.family.accounting;
  if (!accounting.peak) return table;
  const AccountingMoment& peak = *accounting.peak;
  const auto& pss = view.family.pss.peak;
  table.add({"top RES, ps RSS, summed; Slurm by default", mib(peak.rss), mib(accounting.rss_sum),
             "shared pages once per process"});
  table.add({"top, ps %MEM, summed", percent_text(view, peak.rss), percent_text(view, accounting.rss_sum),
             "the same, of the machine's memory"});
  table.add({"psutil shared, top SHR, summed", mib(peak.shared), "-",
             "files and shared memory once per process, not what a fork shares"});
  table.add({"Slurm NoShared", mib(peak.rss - peak.shared), mib(accounting.rss_less_shared),
             "RSS less shared: what a fork shares counts in each"});
  const std::string reported = peak.estimate ? "; not read then: from page walks" : "";
  table.add({"psutil, smem USS, summed", mib_or_dash(peak.uss), "-", "what no other process maps" + reported});
  table.add({"psutil, smem PSS, summed; Slurm UsePss", mib_or_dash(peak.pss), mib_or_dash(pss),
             "every page once" + reported});
  add_cgroup(view, peak.time_s, table);
  table.add({"each page once", mib_or_dash(peak.pss), "-", "of this:"});
  table.add({"  pages of files", mib_or_dash(peak.pss_file), "-",
             "the kernel takes them back when it needs memory, dirty ones once they are written"});
  table.add({"  shared memory", mib_or_dash(peak.pss_shmem), "-", "stays until unmapped and unlinked"});
  table.add({"  anonymous", mib_or_dash(peak.pss_anonymous), "-", "stays until freed"});
  if (const std::int64_t lazy = lazy_free_at(*view.recording, peak.time_s); lazy >= kNamedLazyBytes)
    table.add({"    given up with MADV_FREE", mib(lazy), "-", "the kernel takes it back when it needs memory"});
  if (peak.unmapped.value_or(0) >= kNamedUnmappedBytes)
    table.add({"shared memory that no process maps", mib(*peak.unmapped), mib_or_dash(view.family.unmapped.peak),
               "in no RSS, USS or PSS; the memory cgroup counts it"});
  return table;
}

Table accounting_process_table(const View& view, std::size_t top) {
  Table table({{"pid", Align::right},
               {"RES, RSS", Align::right},
               {"%MEM", Align::right},
               {"SHR, shared", Align::right},
               {"USS", Align::right},
               {"PSS", Align::right}});
  if (!view.family.accounting.peak) return table;
  std::vector<AccountingEntry> entries = view.family.accounting.peak->processes;
  std::ranges::stable_sort(entries, std::ranges::greater{}, &AccountingEntry::rss);
  const std::size_t shown = std::min(top, entries.size());
  for (std::size_t i = 0; i < shown; ++i) {
    const AccountingEntry& entry = entries[i];
    table.add({std::to_string(entry.pid), mib(entry.rss), percent_text(view, entry.rss), mib(entry.shared),
               mib_or_dash(entry.uss), mib_or_dash(entry.pss)});
  }
  if (shown < entries.size()) {
    std::int64_t rss = 0, shared = 0;
    for (std::size_t i = shown; i < entries.size(); ++i) {
      rss += entries[i].rss;
      shared += entries[i].shared;
    }
    table.add(
        {fmt::format("{} more", entries.size() - shown), mib(rss), percent_text(view, rss), mib(shared), "-", "-"});
  }
  return table;
}

Json accounting_json(const View& view) {
  const AccountingView& accounting = view.family.accounting;
  Json json{{"rss_sum", accounting.rss_sum},
            {"pss_sum", optional_json(view.family.pss.peak)},
            {"rss_less_shared", accounting.rss_less_shared},
            {"memory_total", optional_json(view.recording->info.memory_total_bytes)},
            {"at_peak", nullptr}};
  if (!accounting.peak) return json;
  const CgroupReading* group = cgroup_at(view, accounting.peak->time_s);
  const AccountingMoment& peak = *accounting.peak;
  Json processes = Json::array();
  for (const AccountingEntry& entry : peak.processes)
    processes.push_back({{"pid", entry.pid},
                         {"estimate", entry.estimate},
                         {"rss", entry.rss},
                         {"memory_percent", percent_json(view, entry.rss)},
                         {"shared", entry.shared},
                         {"uss", optional_json(entry.uss)},
                         {"pss", optional_json(entry.pss)}});
  json["at_peak"] = {{"time_s", peak.time_s},
                     {"rss_sum", peak.rss},
                     {"memory_percent_sum", percent_json(view, peak.rss)},
                     {"shared_sum", peak.shared},
                     {"rss_less_shared", peak.rss - peak.shared},
                     {"uss_sum", optional_json(peak.uss)},
                     {"pss_sum", optional_json(peak.pss)},
                     {"pss_file", optional_json(peak.pss_file)},
                     {"pss_shared_memory", optional_json(peak.pss_shmem)},
                     {"pss_anonymous", optional_json(peak.pss_anonymous)},
                     {"lazy_free", lazy_free_at(*view.recording, peak.time_s)},
                     {"shmem_unmapped", optional_json(peak.unmapped)},
                     {"cgroup_usage", group == nullptr ? Json(nullptr) : optional_json(group->usage_bytes)},
                     {"cgroup_held", group == nullptr ? Json(nullptr) : optional_json(held(*group))},
                     {"cgroup_file", group == nullptr ? Json(nullptr) : optional_json(group->file_bytes)},
                     {"estimate", peak.estimate},
                     {"left_out", peak.left_out},
                     {"processes", std::move(processes)}};
  return json;
}

}  // namespace whyrss
