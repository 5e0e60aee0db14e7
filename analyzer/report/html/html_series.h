// Bytes over the snapshots of a process, as changes.
#pragma once

#include <cstdint>
#include <vector>

namespace whyrss {

class HtmlSeries {
 public:
  struct Change {
    std::uint32_t at = 0;  // which snapshot of the process
    std::int64_t bytes = 0;
    double variance = 0;  // of the value from then on, as first set
  };

  void set(std::uint32_t at, std::int64_t bytes, double variance = 0);
  // Where `set` was not called for this snapshot there is nothing.
  void close(std::uint32_t at) {
    if (seen_ != at) set(at, 0);
  }

  [[nodiscard]] bool is_empty() const { return last_ == 0; }  // by now
  [[nodiscard]] std::int64_t most() const { return most_; }
  [[nodiscard]] bool has_variance() const { return has_variance_; }
  [[nodiscard]] const std::vector<Change>& changes() const { return changes_; }

 private:
  std::vector<Change> changes_;
  std::int64_t last_ = 0, most_ = 0;
  std::uint32_t seen_ = UINT32_MAX;
  bool has_variance_ = false;
};

inline void HtmlSeries::set(std::uint32_t at, std::int64_t bytes, double variance) {
  seen_ = at;
  if (bytes == last_) return;
  changes_.push_back({at, bytes - last_, variance});
  last_ = bytes;
  if (bytes > most_) most_ = bytes;
  has_variance_ |= variance > 0;
}

}  // namespace whyrss
