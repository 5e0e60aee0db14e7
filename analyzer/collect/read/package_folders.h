// Folders of PYTHONPATH into which packages were installed, as by `pip install --target`: names of files there do not
// say that they are no code of the user's. Such a folder has a *.dist-info or *.egg-info in it.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace whyrss {

// Each PYTHONPATH is read once. Not thread-safe.
class PackageFolders {
 public:
  // Absolute, as the process names them, without a slash at their end. `pythonpath`: as in its environment.
  const std::vector<std::string>& of(pid_t pid, std::string_view pythonpath);

 private:
  std::map<std::string, std::vector<std::string>> known_;  // by working directory and PYTHONPATH
};

}  // namespace whyrss
