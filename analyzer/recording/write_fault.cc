#include "recording/write_fault.h"

#include <fmt/format.h>

#include <vector>

namespace whyrss {
namespace {

// Of a manifest that anybody may have made: any numbers.
double seconds(std::int64_t from_ns, std::int64_t to_ns) {
  return (static_cast<double>(to_ns) - static_cast<double>(from_ns)) / 1e9;
}

std::string counted(std::int64_t count, const char* one, const char* many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

// "3 events, 1 snapshot and 7 other frames"; "" where nothing is missing.
std::string missing_text(const WriteFault& fault) {
  std::vector<std::string> parts;
  if (fault.events > 0) parts.push_back(counted(fault.events, "event", "events"));
  if (fault.walks > 0) parts.push_back(counted(fault.walks, "snapshot", "snapshots"));
  if (fault.frames > 0) parts.push_back(counted(fault.frames, "other frame", "other frames"));
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ", parts[i]);
  return text;
}

}  // namespace

std::string describe(const WriteFault& fault, std::int64_t started_ns) {
  const std::string others =
      fault.other_files > 0 ? " and " + counted(fault.other_files, "other file", "other files") : std::string();
  const std::string end =
      fault.until_ns == 0 ? std::string("on") : fmt::format("to {:.3f} s", seconds(started_ns, fault.until_ns));
  const std::string missing = missing_text(fault);
  return fmt::format("{}{} could not be written from {:.3f} s {}: {}{}", fault.file, others,
                     seconds(started_ns, fault.from_ns), end, fault.error,
                     missing.empty() ? "" : fmt::format(" ({} missing)", missing));
}

}  // namespace whyrss
