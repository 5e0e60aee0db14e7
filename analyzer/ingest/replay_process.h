// What Replay keeps of one process. Private to replay.cc and replay_walk.cc.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ingest/block_merge.h"
#include "ingest/replay.h"
#include "ingest/small_blocks.h"

namespace whyrss {

struct Replay::Process {
  ProcessInput* input = nullptr;
  ProcessAccount* account = nullptr;
  std::vector<EventRecord> records;
  std::vector<Walk> walks;
  std::vector<Bytes> liveness_frames, views_frames;  // in the order of the walks
  std::size_t next_record = 0, next_walk = 0, next_liveness = 0, next_views = 0;
  LivenessReader liveness_reader;
  std::optional<WalkLiveness> liveness;  // the last one read

  std::vector<std::unique_ptr<ImageTables>> images;  // one per attach record, all definitions loaded
  std::size_t next_image = 0;
  ImageTables* image = nullptr;  // nullptr: not attached yet, or an exec went to a program without us
  AddressSpace space;
  SmallBlocks small;
  std::optional<BlockMerge> merge;  // exact mode
  StackCache stacks;
  std::unique_ptr<AddressSpace> fork_snapshot;  // the parent's picture when it forked this child
  std::unique_ptr<LiveSet> fork_small;          // and its small blocks
  Process* parent = nullptr;
  std::vector<Process*> children;
  std::uint64_t attach_ns = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t attached_ns = 0;  // the image of now
  std::uint64_t page_bytes = 4096;
  bool attached = false, needs_inheritance_from_walk = false, exec_pending = false;

  // The last walk's private anonymous pages, for copies.
  std::vector<AnonymousRun> last_anonymous;
  std::uint64_t last_faults = 0, last_resident_pages = 0;
  bool has_last_walk = false;
  double last_walk_s = 0;
  bool family_page_released = false;  // since the last walk, a child of this process ended or ran exec
  // Decided at the next walk: by then the children's walks of the same moment have been seen.
  struct PendingCopies {
    double from_s = 0, time_s = 0;
    std::vector<AnonymousRun> before, now;
    std::uint64_t most_pages = 0, page_bytes = 4096;
  };
  std::optional<PendingCopies> pending;
  std::vector<std::pair<std::string, std::uint64_t>> open_phases;
  std::size_t damaged_walks = 0;
  std::uint64_t most_underflowed_pages = 0;  // at one walk

  [[nodiscard]] std::uint64_t next_ns() const {
    std::uint64_t next = std::numeric_limits<std::uint64_t>::max();
    if (next_record < records.size()) next = records[next_record].time_ns;
    if (next_walk < walks.size()) next = std::min(next, walks[next_walk].time_ns);
    return next;
  }
  // Whether what it inherits of small blocks is ever looked at.
  [[nodiscard]] bool shows_inherited_blocks() const;
  [[nodiscard]] bool done() const { return next_record == records.size() && next_walk == walks.size(); }
};

}  // namespace whyrss
