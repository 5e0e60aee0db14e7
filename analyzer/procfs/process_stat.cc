#include "procfs/process_stat.h"

#include <array>

#include "support/text.h"

namespace whyrss {

std::optional<ProcessStat> parse_process_stat(std::string_view text) {
  // The name may hold anything, also ") R 1 ": the last parenthesis ends it.
  const std::size_t open = text.find('(');
  const std::size_t close = text.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return std::nullopt;
  ProcessStat stat;
  stat.comm = text.substr(open + 1, close - open - 1);
  std::string_view rest = text.substr(close + 1);
  while (!rest.empty() && (rest.back() == '\n' || rest.back() == ' ')) rest.remove_suffix(1);
  const std::string_view state = take_word(rest);
  if (state.size() != 1) return std::nullopt;
  stat.state = state.front();
  constexpr std::size_t kNeeded = 29;
  std::array<std::uint64_t, 53> fields{};  // numbered as in proc(5)
  for (std::size_t number = 4; number < fields.size(); ++number) {
    // Negative ones (tpgid, nice) are not used here.
    const std::string_view word = take_word(rest);
    if (word.empty() && number < kNeeded) return std::nullopt;
    fields[number] = parse_number<std::uint64_t>(word).value_or(0);
  }
  stat.parent_pid = static_cast<std::int64_t>(fields[4]);
  stat.minor_faults = fields[10];
  stat.major_faults = fields[12];
  stat.cpu_ticks = fields[14] + fields[15];
  stat.thread_count = static_cast<std::int64_t>(fields[20]);
  stat.start_ticks = fields[22];
  stat.start_code = fields[26];
  stat.start_stack = fields[28];
  stat.exit_status = static_cast<int>(fields[52]);
  return stat;
}

std::optional<MemoryPages> parse_statm(std::string_view text) {
  const auto size = parse_number<std::uint64_t>(take_word(text));
  const auto resident = parse_number<std::uint64_t>(take_word(text));
  const auto shared = parse_number<std::uint64_t>(take_word(text));
  if (!size || !resident || !shared) return std::nullopt;
  return MemoryPages{.size = *size, .resident = *resident, .shared = *shared};
}

std::optional<std::int64_t> status_value(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    std::string_view line = take_until(text, '\n');
    if (take_until(line, ':') == name) return parse_number<std::int64_t>(take_word(line));
  }
  return std::nullopt;
}

}  // namespace whyrss
