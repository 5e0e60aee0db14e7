#include "procfs/smaps.h"

#include <algorithm>
#include <array>
#include <utility>

#include "support/text.h"

namespace whyrss {
namespace {

using Field = std::int64_t SmapsEntry::*;
using OptionalField = std::optional<std::int64_t> SmapsEntry::*;
constexpr std::array<std::pair<std::string_view, Field>, 14> kFields{{
    {"Size", &SmapsEntry::size_bytes},
    {"KernelPageSize", &SmapsEntry::page_bytes},
    {"Rss", &SmapsEntry::rss_bytes},
    {"Pss", &SmapsEntry::pss_bytes},
    {"Shared_Clean", &SmapsEntry::shared_clean_bytes},
    {"Shared_Dirty", &SmapsEntry::shared_dirty_bytes},
    {"Private_Clean", &SmapsEntry::private_clean_bytes},
    {"Private_Dirty", &SmapsEntry::private_dirty_bytes},
    {"Anonymous", &SmapsEntry::anonymous_bytes},
    {"LazyFree", &SmapsEntry::lazy_free_bytes},
    {"AnonHugePages", &SmapsEntry::anon_huge_bytes},
    {"Shared_Hugetlb", &SmapsEntry::hugetlb_bytes},
    {"Private_Hugetlb", &SmapsEntry::hugetlb_bytes},
    {"Swap", &SmapsEntry::swap_bytes},
}};
constexpr std::array<std::pair<std::string_view, OptionalField>, 3> kOptionalFields{{
    {"Pss_Anon", &SmapsEntry::pss_anonymous_bytes},
    {"Pss_File", &SmapsEntry::pss_file_bytes},
    {"Pss_Shmem", &SmapsEntry::pss_shmem_bytes},
}};

// Far above any address space it is not a size, and its sum would overflow.
std::optional<std::int64_t> take_kib(std::string_view line) {
  const auto kib = parse_number<std::int64_t>(take_word(line));
  return kib && *kib >= 0 && *kib < (std::int64_t{1} << 50) ? std::optional(*kib * 1024) : std::nullopt;
}

void take_field(std::string_view line, SmapsEntry& entry) {
  const std::string_view name = take_until(line, ':');
  if (name == "VmFlags") {
    entry.vm_flags = line.substr(std::min(line.find_first_not_of(' '), line.size()));
    return;
  }
  for (const auto& [field_name, field] : kFields)
    if (name == field_name) entry.*field += take_kib(line).value_or(0);
  for (const auto& [field_name, field] : kOptionalFields)
    if (name == field_name) entry.*field = take_kib(line);
}

}  // namespace

std::vector<SmapsEntry> parse_smaps(std::string_view text) {
  std::vector<SmapsEntry> entries;
  while (!text.empty()) {
    const std::string_view line = take_until(text, '\n');
    // Field names start with a capital; address ranges are lower-case hex.
    const bool is_field = !line.empty() && line.front() >= 'A' && line.front() <= 'Z';
    if (is_field && !entries.empty()) {
      take_field(line, entries.back());
    } else if (auto range = parse_maps_line(line)) {
      cut_out<SmapsEntry>(*range, entries, [](SmapsEntry& entry) -> MapsEntry& { return entry.range; });
      entries.emplace_back().range = std::move(*range);
    }
  }
  return entries;
}

std::optional<SmapsEntry> parse_smaps_rollup(std::string_view text) {
  std::vector<SmapsEntry> entries = parse_smaps(text);
  if (entries.empty()) return std::nullopt;
  return std::move(entries.front());
}

}  // namespace whyrss
