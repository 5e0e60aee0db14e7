// The payloads of liveness frames of one process. A steady heap costs next to nothing: most frames hold differences.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collect/read/liveness_read.h"

namespace whyrss {

class LivenessFrames {
 public:
  // Every so often a frame is whole, so that a damaged one costs at most the ones up to there.
  static constexpr unsigned kFramesPerWhole = 16;

  // Call in order of the walks; what is returned must be stored, or restart() called.
  std::vector<std::byte> encode(Liveness liveness);
  void restart() { since_whole_ = 0; }

 private:
  std::vector<LivenessPages> previous_;
  std::uint64_t previous_ns_ = 0;
  unsigned since_whole_ = 0;  // 0: the next one is whole
};

}  // namespace whyrss
