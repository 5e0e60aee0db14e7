// How much of files and shared memory can count in the PSS of several processes together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/account.h"

namespace whyrss {

struct FilePss {
  const ProcessAccount* process = nullptr;
  std::int64_t pss_bytes = 0;  // of files and shared memory, as it was read or estimated
};

// Keeps what a walk says of files once it was asked for: views ask at each moment of a recording. Not for several
// threads at once.
class FilePssBound {
 public:
  // The recording must outlive this, as it is.
  explicit FilePssBound(const RecordingAccount& recording);

  // Bytes. No page counts twice, and each process was read at another time, when others mapped less of the same: a file
  // of known size counts once at most. Files of no known size have what they had in each.
  [[nodiscard]] std::int64_t most(std::span<const FilePss> parts, double time_s) const;

 private:
  struct OfFiles {
    std::vector<std::pair<std::size_t, std::int64_t>> known;  // index in `sizes_`, mapped bytes; each file once
    std::int64_t exclusive = 0, shared = 0;                   // of all files, bytes
    std::int64_t unknown_exclusive = 0, unknown_shared = 0;   // of those of no known size
  };
  const OfFiles& files_of(const Account& account) const;

  std::unordered_map<std::string_view, std::size_t> numbers_;  // by path
  std::vector<std::int64_t> sizes_;                            // largest known, bytes
  mutable std::unordered_map<const Account*, OfFiles> walks_;
  mutable std::vector<std::int64_t> mapped_;  // by file, all 0 between two calls
};

}  // namespace whyrss
