#include "procfs/maps.h"

#include <algorithm>

#include "support/text.h"

namespace whyrss {

std::optional<MapsEntry> parse_maps_line(std::string_view line) {
  std::string_view range = take_word(line);
  const std::string_view perms = take_word(line);
  const auto offset = parse_number<std::uint64_t>(take_word(line), 16);
  std::string_view device = take_word(line);
  const auto inode = parse_number<std::uint64_t>(take_word(line));
  const auto start = parse_number<std::uint64_t>(take_until(range, '-'), 16);
  const auto end = parse_number<std::uint64_t>(range, 16);
  const auto major = parse_number<std::uint32_t>(take_until(device, ':'), 16);
  const auto minor = parse_number<std::uint32_t>(device, 16);
  if (!start || !end || *end < *start || perms.size() != 4 || !offset || !major || !minor || !inode)
    return std::nullopt;
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  return MapsEntry{.start = *start,
                   .end = *end,
                   .readable = perms[0] == 'r',
                   .writable = perms[1] == 'w',
                   .executable = perms[2] == 'x',
                   .shared = perms[3] == 's',
                   .file_offset = *offset,
                   .device_major = *major,
                   .device_minor = *minor,
                   .inode = *inode,
                   .path = std::string(line)};
}

std::vector<MapsEntry> parse_maps(std::string_view text) {
  std::vector<MapsEntry> entries;
  while (!text.empty()) {
    auto entry = parse_maps_line(take_until(text, '\n'));
    if (!entry) continue;
    cut_out<MapsEntry>(*entry, entries, [](MapsEntry& range) -> MapsEntry& { return range; });
    entries.push_back(std::move(*entry));
  }
  return entries;
}

DeviceTypes parse_mountinfo(std::string_view text) {
  DeviceTypes types;
  while (!text.empty()) {
    std::string_view line = take_until(text, '\n');
    take_word(line);
    take_word(line);
    std::string_view device = take_word(line);
    const auto major = parse_number<std::uint32_t>(take_until(device, ':'));
    const auto minor = parse_number<std::uint32_t>(device);
    // The type follows a single "-": before it stands a varying number of optional fields.
    while (!line.empty() && take_word(line) != "-") {
    }
    const std::string_view type = take_word(line);
    if (major && minor && !type.empty()) types.emplace(std::pair(*major, *minor), std::string(type));
  }
  return types;
}

}  // namespace whyrss
