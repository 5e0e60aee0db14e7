// What the collector could not write. It goes on: the job must not feel it, and what follows is written again as soon
// as there is room.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "recording/write_fault.h"
#include "shim/trace/recording_format.h"
#include "support/result.h"

namespace whyrss {

class WriteFaults {
 public:
  // `directory` of the recording: files are named below it.
  explicit WriteFaults(std::string directory) : directory_(std::move(directory)) {}

  // What is given up: a frame, or so many events.
  void lost_frame(const std::string& path, trace::FrameKind kind, const Error& error);
  void lost_events(const std::string& path, std::uint64_t events, const Error& error);
  // The manifest as it is now, of which nothing is missing for good.
  void lost_state(const std::string& path, const Error& error) { at(path, error); }
  // Whatever failed before works again.
  void wrote();

  [[nodiscard]] bool any() const { return !faults_.empty(); }
  // True once after an error of a new kind.
  bool take_news() { return std::exchange(has_news_, false); }
  // In the order of their first time.
  [[nodiscard]] std::vector<WriteFault> list() const;

 private:
  struct Fault {
    WriteFault known;
    std::set<std::string> files;
    std::int64_t last_ns = 0;
    bool is_over = false;
  };
  WriteFault& at(const std::string& path, const Error& error);

  std::string directory_;
  std::vector<Fault> faults_;  // one for each kind of error
  bool has_news_ = false, is_failing_ = false;
};

}  // namespace whyrss
