// manifest.json on disk, which must also be written when the disk is full: it holds how the command ended, and what
// could not be recorded.
//
// Beside it lies a spare file whose blocks are reserved. A new text goes into the spare, and the two change names: a
// reader sees the old text or the new one, and neither needs more room. Where file systems cannot do that (NFS), a
// temporary file is renamed, and as the last resort the file is overwritten in place, in the blocks that it has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "support/file.h"
#include "support/result.h"

namespace whyrss {

class ManifestFile {
 public:
  explicit ManifestFile(const std::string& directory)
      : path_(directory + "/manifest.json"), spare_path_(directory + "/manifest.spare") {}

  // Room is reserved for a text that is longer by `growth_bytes`, and somewhat more.
  Status write(std::string_view text, std::size_t growth_bytes = 0);
  // The recording is closed: nothing will be written any more. The file is as long as its text.
  void drop_reserve();

 private:
  struct Slot {
    Fd fd;
    std::uint64_t reserved_bytes = 0;
  };
  [[nodiscard]] static Status overwrite(const Slot& slot, std::string_view text, const std::string& path);
  static void reserve(Slot& slot, std::size_t text_bytes);
  void reserve_both(std::size_t text_bytes);
  [[nodiscard]] bool write_by_exchange(std::string_view text);
  [[nodiscard]] bool write_in_place(std::string_view text);

  std::string path_, spare_path_;
  Slot current_, spare_;
  std::string shown_;  // the text that a reader sees
};

}  // namespace whyrss
