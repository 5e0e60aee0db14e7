#include "load/unmapped_readings.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string_view>
#include <utility>

namespace whyrss {
namespace {

struct Mapped {
  double time_s = 0;
  std::int64_t bytes = 0;
};
using MappedFiles = std::map<std::string_view, std::vector<Mapped>>;  // by path; of all walks

bool has_path(std::string_view name) {
  return name.starts_with('/') && !name.starts_with("/memfd:") && !name.starts_with("/SYSV");
}

MappedFiles mapped_files(const std::vector<ProcessAccount>& processes) {
  MappedFiles files;
  for (const ProcessAccount& process : processes)
    for (const UnmappedMemory& reading : process.unmapped)
      for (const UnmappedMemory::File& file : reading.files)
        if (has_path(file.name)) files.try_emplace(file.name);
  if (files.empty()) return files;
  for (const ProcessAccount& process : processes)
    for (const Account& walk : process.accounts)
      for (const Slice& slice : walk.slices)
        if (slice.site.cause == Cause::shared_memory)
          if (const auto file = files.find(slice.site.mapping); file != files.end())
            file->second.push_back({walk.time_s, slice.bytes});
  return files;
}

void mark_mapped(UnmappedMemory& reading, const MappedFiles& mapped) {
  for (UnmappedMemory::File& file : reading.files)
    if (const auto found = mapped.find(file.name); found != mapped.end())
      file.is_mapped_later =
          std::ranges::any_of(found->second, [&](const Mapped& walk) { return walk.time_s > reading.time_s; });
}

// Between `reading` and the next one, at `until_s`; nothing of it was mapped: as it is.
UnmappedMemory without_mapped(const UnmappedMemory& reading, const MappedFiles& mapped, double until_s) {
  UnmappedMemory rest = reading;
  rest.time_s = until_s;
  for (UnmappedMemory::File& file : rest.files) {
    const auto found = mapped.find(file.name);
    if (found == mapped.end()) continue;
    std::int64_t most_bytes = 0;
    for (const Mapped& walk : found->second) {
      if (walk.time_s <= reading.time_s || walk.time_s >= until_s) continue;
      most_bytes = std::max(most_bytes, std::min(walk.bytes, file.bytes));
      rest.time_s = std::min(rest.time_s, walk.time_s);
    }
    file.bytes -= most_bytes;
    *rest.bytes -= most_bytes;
    if (file.bytes == 0) --rest.count;
  }
  std::erase_if(rest.files, [](const UnmappedMemory::File& file) { return file.bytes == 0; });
  return rest;
}

}  // namespace

void leave_out_mapped(std::vector<ProcessAccount>& processes) {
  const MappedFiles mapped = mapped_files(processes);
  if (mapped.empty()) return;
  std::vector<std::vector<UnmappedMemory>> settled(processes.size());
  for (std::size_t i = 0; i < processes.size(); ++i) {
    const std::vector<UnmappedMemory>& readings = processes[i].unmapped;
    for (auto reading = readings.begin(); reading != readings.end(); ++reading) {
      const auto next = std::next(reading);
      const double until_s = next == readings.end() ? std::numeric_limits<double>::infinity() : next->time_s;
      settled[i].push_back(*reading);
      if (!reading->bytes) continue;
      UnmappedMemory rest = without_mapped(*reading, mapped, until_s);
      if (rest.time_s < until_s) settled[i].push_back(std::move(rest));
    }
  }
  for (std::size_t i = 0; i < processes.size(); ++i) {
    for (UnmappedMemory& reading : settled[i]) mark_mapped(reading, mapped);
    processes[i].unmapped = std::move(settled[i]);
  }
}

}  // namespace whyrss
