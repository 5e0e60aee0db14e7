#include "collect/read/descriptor_count.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>
#include <iterator>

namespace whyrss {

std::optional<std::int64_t> count_descriptors(pid_t pid) {
  const std::string directory = fmt::format("/proc/{}/fd", pid);
  struct stat facts {};
  // Linux 6.2 and newer say it here, without a walk through all of them.
  if (stat(directory.c_str(), &facts) == 0 && facts.st_size > 0) return facts.st_size;
  std::error_code error;
  const std::filesystem::directory_iterator entries(directory, error);
  if (error) return std::nullopt;
  return std::distance(begin(entries), end(entries));
}

}  // namespace whyrss
