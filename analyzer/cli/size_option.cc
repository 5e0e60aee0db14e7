#include "cli/size_option.h"

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <string_view>

namespace whyrss {
namespace {

struct Unit {
  std::string_view name;  // lower case
  double bytes;
};

constexpr double kKi = 1024;
constexpr std::array<Unit, 14> kUnits{{{"", 1},
                                       {"b", 1},
                                       {"k", kKi},
                                       {"kib", kKi},
                                       {"kb", 1e3},
                                       {"m", kKi* kKi},
                                       {"mib", kKi* kKi},
                                       {"mb", 1e6},
                                       {"g", kKi* kKi* kKi},
                                       {"gib", kKi* kKi* kKi},
                                       {"gb", 1e9},
                                       {"t", kKi* kKi* kKi* kKi},
                                       {"tib", kKi* kKi* kKi* kKi},
                                       {"tb", 1e12}}};
constexpr double kLargestBytes = 9.0e18;  // below 2^63

}  // namespace

Result<std::int64_t> parse_size(const std::string& text) {
  const Error wrong{"'" + text + "' is no size: give a number with KiB, MiB or GiB, such as 64KiB"};
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc{} || !std::isfinite(number) || number < 0) return wrong;
  std::string unit;
  for (const char* at = stop; at != end; ++at)
    if (*at != ' ') unit += static_cast<char>(std::tolower(static_cast<unsigned char>(*at)));
  for (const Unit& known : kUnits) {
    if (known.name != unit) continue;
    const double bytes = std::round(number * known.bytes);
    if (bytes > kLargestBytes) return wrong;
    return static_cast<std::int64_t>(bytes);
  }
  return wrong;
}

}  // namespace whyrss
