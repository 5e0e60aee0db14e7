// Where the compact records of one process are: the runs of all its `blocks` frames, about 60 bytes for 800 events, so
// that the events themselves need not be in memory.
#pragma once

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "recording/block_payload.h"

namespace whyrss {

struct StoredRun {
  std::uint64_t lease = 0;
  std::uint64_t first_ticks = 0, last_ticks = 0;
  std::uint32_t offset = 0, bytes = 0;  // in its chunk
  std::uint32_t from_offset = 0;        // events before it were in another run
  std::uint32_t tid = 0;
  std::uint32_t frame = 0, index = 0;  // the run's number in its frame
  std::uint32_t event_count = 0;
};

// One reading of both clocks.
struct ClockPoint {
  std::uint64_t time_ns = 0, ticks = 0;
};

class BlockRuns {
 public:
  void add(const BlockRun& run, std::uint32_t frame, std::uint32_t index);

  // By lease and offset. Of what was stored twice the later one is left out. Call it when all are added; once more does
  // no harm.
  void sort();

  // Whether a single run holds these bytes of a lease. Quick when what is asked for comes in order.
  [[nodiscard]] bool covers(std::uint64_t lease, std::uint32_t offset, std::uint32_t bytes) const;

  [[nodiscard]] bool empty() const { return runs_.empty(); }
  [[nodiscard]] const std::vector<StoredRun>& all() const { return runs_; }
  // The writers' clocks, and the collector's, which was not interrupted between its two readings.
  [[nodiscard]] const std::vector<ClockPoint>& writer_clocks() const { return writer_clocks_; }
  [[nodiscard]] const std::vector<ClockPoint>& collector_clocks() const { return collector_clocks_; }

  // The ticks between which a record that stands at this place of a chunk was written, as its neighbours say.
  [[nodiscard]] std::pair<std::uint64_t, std::uint64_t> ticks_around(std::uint64_t lease, std::uint32_t offset) const;

 private:
  std::vector<StoredRun> runs_;
  mutable std::size_t last_found_ = 0;  // by covers()
  std::vector<ClockPoint> writer_clocks_, collector_clocks_;
};

}  // namespace whyrss
