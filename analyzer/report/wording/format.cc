#include "report/wording/format.h"

#include <fmt/format.h>

#include <cstdlib>

namespace whyrss {
namespace {

constexpr double kKiB = 1024, kMiB = kKiB * 1024, kGiB = kMiB * 1024;

}  // namespace

std::string size_text(std::int64_t bytes) {
  const double size = static_cast<double>(bytes), magnitude = std::abs(size);
  if (magnitude >= 10 * kGiB) return fmt::format("{:.1f} GiB", size / kGiB);
  if (magnitude >= 9.95 * kMiB) return fmt::format("{:.0f} MiB", size / kMiB);
  if (magnitude >= kMiB) return fmt::format("{:.1f} MiB", size / kMiB);
  if (magnitude >= kKiB) return fmt::format("{:.0f} KiB", size / kKiB);
  return fmt::format("{} B", bytes);
}

std::string growth_text(std::int64_t bytes) { return fmt::format("{}{}", bytes >= 0 ? "+" : "", size_text(bytes)); }

std::string mib(std::int64_t bytes) {
  std::string text = fmt::format("{:.1f}", static_cast<double>(bytes) / kMiB);
  return text == "-0.0" ? "0.0" : text;
}

std::string seconds_text(double seconds) {
  return seconds < 0.0995 ? fmt::format("{:.3f} s", seconds) : fmt::format("{:.1f} s", seconds);
}

std::size_t text_width(std::string_view text) {
  std::size_t width = 0;
  for (const char byte : text) width += is_continuation(byte) ? 0 : 1;
  return width;
}

std::string shortened(const std::string& text, std::size_t columns) {
  if (text_width(text) <= columns) return text;
  std::size_t width = 0, end = 0;
  while (end < text.size() && width + 3 < columns) {
    ++end;
    while (end < text.size() && is_continuation(text[end])) ++end;
    ++width;
  }
  return text.substr(0, end) + "...";
}

}  // namespace whyrss
