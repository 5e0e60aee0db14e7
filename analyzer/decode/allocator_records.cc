#include "decode/allocator_records.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "decode/bytes.h"
#include "shim/trace/trace_format.h"
#include "support/text.h"

namespace whyrss {
namespace {

constexpr std::size_t kMostValues = 32, kLongestName = 64;
constexpr std::int64_t kLargestValue = std::int64_t{1} << 56;  // of which a few can be added up

bool is_name(std::string_view name) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789._";
  return !name.empty() && name.size() <= kLongestName && name.find_first_not_of(kLetters) == std::string_view::npos;
}

void take_value(std::string_view name, std::int64_t value, AllocatorStats& stats) {
  if (name == "whyrss.live_bytes")
    stats.counted_bytes = value;
  else if (name == "whyrss.live_blocks")
    stats.counted_blocks = value;
  else if (stats.values.size() < kMostValues)
    stats.values.try_emplace(std::string(name), value);
}

}  // namespace

void take_allocator_stats(const EventRecord& record, double time_s, std::vector<AllocatorStats>& stats) {
  constexpr std::array kMoments{"start", "peak", "end", "snapshot"};  // by StatsMoment
  ByteReader reader(record.bytes);
  trace::TextRecord fixed{};
  if (!reader.take(fixed) || fixed.argument >= kMoments.size()) return;
  const std::string text = reader.take_text(fixed.text_bytes);
  if (reader.bad()) return;
  AllocatorStats found;
  found.time_s = time_s;
  found.moment = kMoments[fixed.argument];
  for (std::string_view rest = text; !rest.empty();) {
    std::string_view pair = take_until(rest, ' ');
    const std::string_view name = take_until(pair, '=');
    const auto value = parse_number(pair);
    if (is_name(name) && value && *value >= 0 && *value <= kLargestValue) take_value(name, *value, found);
  }
  if (!found.values.empty()) stats.push_back(std::move(found));
}

}  // namespace whyrss
