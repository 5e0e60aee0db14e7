// /proc/PID/maps and /proc/PID/mountinfo, text to structs. Source: proc(5).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace whyrss {

struct MapsEntry {
  std::uint64_t start = 0, end = 0;
  bool readable = false, writable = false, executable = false, shared = false;
  std::uint64_t file_offset = 0;
  std::uint32_t device_major = 0, device_minor = 0;
  std::uint64_t inode = 0;
  std::string path;  // as the kernel prints it: "\012" for a line feed, " (deleted)" at the end
};

// One line; nothing when it is not of that form.
std::optional<MapsEntry> parse_maps_line(std::string_view line);

// Cuts `entry` out of the mappings at the end of `entries`. They are in order of address, but where mappings move while
// the kernel writes the file, lines may overlap: on 6.18 in 5 % of readings of a program that moves them all the time.
// The later line is the newer.
template <typename Entry>
void cut_out(const MapsEntry& entry, std::vector<Entry>& entries, MapsEntry& (*range_of)(Entry&)) {
  while (!entries.empty() && range_of(entries.back()).end > entry.start) {
    MapsEntry& last = range_of(entries.back());
    if (last.start < entry.start) {
      last.end = entry.start;
      return;
    }
    entries.pop_back();
  }
}

// Lines that are not of that form are skipped: the kernel writes none. No two of them overlap.
std::vector<MapsEntry> parse_maps(std::string_view text);

// (major, minor) -> file system type, of all mounts.
using DeviceTypes = std::map<std::pair<std::uint32_t, std::uint32_t>, std::string>;
DeviceTypes parse_mountinfo(std::string_view text);

}  // namespace whyrss
