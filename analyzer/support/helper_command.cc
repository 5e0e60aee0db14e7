#include "support/helper_command.h"

#include <algorithm>

namespace whyrss {

bool is_helper_command(std::span<const std::string> command) {
  return std::ranges::any_of(command, [](const std::string& word) {
    return word.find("resource_tracker") != std::string::npos || word.find("forkserver") != std::string::npos ||
           word.ends_with("torch_shm_manager");
  });
}

}  // namespace whyrss
