#include "metrics/metrics_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "support/file.h"

namespace whyrss {

MetricsFile::MetricsFile(MetricsFile&& other) noexcept
    : path_(std::move(other.path_)), mode_(other.mode_), is_ours_(std::exchange(other.is_ours_, false)) {}

void MetricsFile::remove() {
  if (std::exchange(is_ours_, false)) unlink(path_.c_str());
}

Status MetricsFile::write(std::string_view text) {
  Status written = replace(text);
  if (!written) remove();
  if (written) is_ours_ = true;
  return written;
}

Status MetricsFile::replace(std::string_view text) {
  // A rename would put a file in the place of a device, too.
  struct stat status {};
  if (lstat(path_.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
    return Error{fmt::format("cannot write {}: it is no regular file", path_)};
  // The exporter reads names that end with .prom alone. Two recordings may write the same file.
  const std::string temporary = fmt::format("{}.{}.new", path_, getpid());
  unlink(temporary.c_str());
  const Fd fd(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return system_error("cannot write", temporary);
  if (write_fully(fd.get(), text) && fchmod(fd.get(), mode_) == 0 && rename(temporary.c_str(), path_.c_str()) == 0)
    return Done{};
  Error error = system_error("cannot write", path_);
  unlink(temporary.c_str());
  return error;
}

}  // namespace whyrss
