// Live figures as a file, for the textfile collector of Prometheus's node exporter.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "support/result.h"

namespace whyrss {

class MetricsFile {
 public:
  // `mode`: who may read it, as the job's umask has it.
  MetricsFile(std::string path, mode_t mode) : path_(std::move(path)), mode_(mode) {}
  MetricsFile(MetricsFile&& other) noexcept;
  MetricsFile& operator=(MetricsFile&&) = delete;
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;
  ~MetricsFile() { remove(); }

  // A reader sees the old text or the new one. When it cannot be written it is removed: its figures are old.
  Status write(std::string_view text);

 private:
  Status replace(std::string_view text);
  void remove();

  std::string path_;
  mode_t mode_;
  bool is_ours_ = false;  // has been written
};

}  // namespace whyrss
