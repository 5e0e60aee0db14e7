// A part as a file (part.proto): recordings to blocks, blocks to recordings, and what stands before them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "job/part.h"
#include "support/result.h"

namespace whyrss {

// A recording as it lies in a part.
struct PartBlock {
  PartEntry entry;
  std::string stored;
};
PartBlock make_block(const ReducedRecording& recording);

// Of a block that fits its checksum. Fails when it is not what the entry says of it.
Result<ReducedRecording> read_stored(std::string_view stored, const PartEntry& entry);

// What stands before the blocks. `index`: in order.
std::string part_head(const PartIndex& index);

// An open part. Its blocks are read when asked for, and it keeps no descriptor: a job has thousands of parts.
class PartFile {
 public:
  // Fails when it is no part, of a later format, cut off, or its index is damaged: "PATH: why".
  static Result<PartFile> open(const std::string& path);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const PartIndex& index() const { return index_; }
  [[nodiscard]] Result<std::string> read_block(std::size_t entry) const;  // as stored
  [[nodiscard]] Result<ReducedRecording> read_recording(std::size_t entry) const;

 private:
  std::string path_;
  PartIndex index_;
  std::vector<std::uint64_t> offsets_;
};

// Whether the path names a regular file, or a link to one: a part, as recordings are directories.
bool may_be_part(const std::string& path);

}  // namespace whyrss
