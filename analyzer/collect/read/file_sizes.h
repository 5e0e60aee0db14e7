// How large the files are that a process maps: what of them is in its memory can grow to that, and no further. Not
// thread-safe.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>

#include "collect/read/backing.h"
#include "collect/read/page_walk.h"

namespace whyrss {

class MappedFileSizes {
 public:
  // The payload of a `file_sizes` frame for that walk of the process: the files with 1 MiB of pages in it or more, of
  // which the size, or what of it is mapped, or whether writes go to it, is not as reported before. Nothing when there
  // is none. Asks the kernel for each file anew where `anew`, else only for those that it has not asked for yet. Only
  // of local file systems. `resolver`: that of the walk.
  [[nodiscard]] std::optional<nlohmann::json> changes(const PageWalk& walk, const BackingResolver& resolver, pid_t pid,
                                                      bool anew);

 private:
  struct Reported {
    std::int64_t size_bytes = 0;
    std::int64_t mapped_bytes = 0;
    bool is_writable = false;
    friend bool operator==(const Reported&, const Reported&) = default;
  };

  std::map<std::pair<std::string, std::uint64_t>, Reported> reported_;  // by path and inode; size -1: not known
};

}  // namespace whyrss
