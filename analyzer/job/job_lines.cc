#include "job/job_lines.h"

namespace whyrss {

// No text of a line holds a NUL: printable() replaces them.
std::string JobLines::key_of(const JobLine& line) {
  std::string key;
  key.reserve(line.text.size() + line.file.size() + line.mapping.size() + 2);
  return key.append(line.text).append(1, '\0').append(line.file).append(1, '\0').append(line.mapping);
}

std::vector<std::uint32_t> JobLines::numbers_of(const std::vector<JobLine>& lines) {
  std::vector<std::uint32_t> numbers;
  numbers.reserve(lines.size());
  for (const JobLine& line : lines) {
    const auto [known, is_new] = numbers_.try_emplace(key_of(line), static_cast<std::uint32_t>(lines_.size()));
    if (is_new) lines_.push_back(line);
    numbers.push_back(known->second);
  }
  return numbers;
}

}  // namespace whyrss
