// How much of files and shared memory can count in the PSS of several processes together.
#pragma once

#include <cstdint>
#include <span>

#include "model/account.h"

namespace whyrss {

struct FilePss {
  const ProcessAccount* process = nullptr;
  std::int64_t pss_bytes = 0;  // of files and shared memory, as it was read or estimated
};

// No page counts twice, and each process was read at another time, when others mapped less of the same: a file of known
// size counts once at most. Files of no known size have what they had in each.
std::int64_t most_file_pss(std::span<const FilePss> parts, double time_s);

}  // namespace whyrss
