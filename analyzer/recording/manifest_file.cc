#include "recording/manifest_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace whyrss {
namespace {

// Room for what a manifest grows by: the words on a fault, the end.
constexpr std::uint64_t kReservedBytes = 8 * 1024;

}  // namespace

// With blanks over the end of a longer text before it, which is still JSON: cutting it back would give up the blocks.
Status ManifestFile::overwrite(const Slot& slot, std::string_view text, const std::string& path) {
  struct stat status {};
  std::string padded(text);
  if (fstat(slot.fd.get(), &status) == 0 && std::cmp_less(padded.size(), status.st_size))
    padded.resize(static_cast<std::size_t>(status.st_size), '\n');
  if (!write_fully_at(slot.fd.get(), padded, 0)) return system_error("cannot write", path);
  return Done{};
}

// Behind the end of the file, which stays where it is.
void ManifestFile::reserve(Slot& slot, std::size_t text_bytes) {
  if (!slot.fd || text_bytes + kReservedBytes / 2 <= slot.reserved_bytes) return;
  const std::uint64_t wanted = text_bytes + kReservedBytes;
  if (fallocate(slot.fd.get(), FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(wanted)) == 0) slot.reserved_bytes = wanted;
}

void ManifestFile::reserve_both(std::size_t text_bytes) {
  if (!current_.fd) current_.fd = Fd(open(path_.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!spare_.fd) spare_.fd = Fd(open(spare_path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  reserve(current_, text_bytes);
  reserve(spare_, text_bytes);
}

bool ManifestFile::write_by_exchange(std::string_view text) {
  if (!spare_.fd || !overwrite(spare_, text, spare_path_) ||
      renameat2(AT_FDCWD, spare_path_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) != 0)
    return false;
  std::swap(current_, spare_);
  return true;
}

// What did not fit has spoilt the text that stood there, which does fit.
bool ManifestFile::write_in_place(std::string_view text) {
  if (!current_.fd) return false;
  if (overwrite(current_, text, path_)) return true;
  static_cast<void>(overwrite(current_, shown_, path_));
  return false;
}

Status ManifestFile::write(std::string_view text, std::size_t growth_bytes) {
  if (!write_by_exchange(text)) {
    Status replaced = write_file_atomically(path_, text);
    if (replaced) current_ = Slot{};
    if (!replaced && !write_in_place(text)) return replaced;
  }
  shown_ = text;
  reserve_both(text.size() + growth_bytes);
  return Done{};
}

void ManifestFile::drop_reserve() {
  if (spare_.fd) unlink(spare_path_.c_str());
  if (current_.fd) static_cast<void>(ftruncate(current_.fd.get(), static_cast<off_t>(shown_.size())));
  spare_ = Slot{};
  current_ = Slot{};
}

}  // namespace whyrss
