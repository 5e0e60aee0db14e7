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

// Lines that are not of that form are skipped: the kernel writes none.
std::vector<MapsEntry> parse_maps(std::string_view text);

// (major, minor) -> file system type, of all mounts.
using DeviceTypes = std::map<std::pair<std::uint32_t, std::uint32_t>, std::string>;
DeviceTypes parse_mountinfo(std::string_view text);

}  // namespace whyrss
