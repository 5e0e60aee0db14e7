// Lines of a whole job, each with a number; recordings number theirs each for itself.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "job/part.h"

namespace whyrss {

class JobLines {
 public:
  // The job's numbers of a recording's lines, by theirs.
  std::vector<std::uint32_t> numbers_of(const std::vector<JobLine>& lines);
  [[nodiscard]] const JobLine& operator[](std::uint32_t number) const { return lines_[number]; }
  // The number of a line that is known.
  [[nodiscard]] std::uint32_t number_of(const JobLine& line) const { return numbers_.at(key_of(line)); }

 private:
  static std::string key_of(const JobLine& line);
  std::unordered_map<std::string, std::uint32_t> numbers_;
  std::vector<JobLine> lines_;
};

}  // namespace whyrss
