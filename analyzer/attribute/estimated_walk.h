// What a page walk would probably have seen at a moment between two walks, or after the last one: its resident set is
// polled, and events tell what was mapped, allocated, touched and given back since the walk before. What they do not
// explain of the polled size is left open.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "attribute/evidence.h"
#include "attribute/touched_pages.h"

namespace whyrss {

// Memory that the program has mapped since the walk.
struct NewMapping {
  std::uint64_t start = 0, end = 0;
  Backing backing = Backing::anonymous;
  bool shared = false;
  std::string path{};  // "": not known
};

struct PolledState {
  std::int64_t rss_bytes = 0;
  std::int64_t shared_bytes = 0;            // of them of files and shmem
  std::optional<std::int64_t> live_growth;  // of blocks of all sizes since the walk, by the counts before both
  // The most that the counts before and after both allow: a block that is just being resized, or came between a count
  // and its moment, is in one of them alone.
  std::optional<std::int64_t> most_live_growth{};
  std::optional<double> object_growth{};  // of Python's small objects since the walk, by samples
  // The most that samples allow for malloc's small blocks: a count may be from before many of them were freed.
  std::optional<double> most_small_growth{};
  bool samples_faults = false;  // page faults were sampled since the walk
};

struct EstimatedWalk {
  // As the walk's, with the resident pages of the moment as far as they are explained.
  std::vector<Vma> vmas;
  std::vector<ResidentRun> runs;
  std::vector<LivePages> live_pages;
  // Polled and not explained, without and with a file or shared memory behind.
  std::int64_t open_anonymous_bytes = 0, open_shared_bytes = 0;
  // More is there by events than was polled: what of it went is not known.
  std::int64_t lost_anonymous_bytes = 0, lost_shared_bytes = 0;
  double bytes_per_sample = 0;  // of what came since the walk, as far as samples tell it
  // Of pages that a fork made shared: what was copied since the walk, by samples, from each sampled page upwards.
  std::vector<Range> copied{};
  double copied_bytes_per_sample = 0;
  // By the call that made it: of what is likely to be in new memory, though no sample tells so, in bytes squared.
  std::map<StackId, double> unsampled_variances{};
};

// What sampled blocks stand for: those in CPython's arenas, and all others.
struct SampledBytes {
  double objects = 0, others = 0;
  double others_variance = 0;  // in bytes squared
  double most_of_one = 0;      // of the others
};
SampledBytes sampled_bytes(const Evidence& evidence);

// `walked`: of the last walk. `now`: owned, held_blocks and small_blocks of the moment; nothing else of it is used.
EstimatedWalk estimate_walk(const Evidence& walked, const Evidence& now, const SinceWalk& since,
                            const std::vector<NewMapping>& mapped, const PolledState& polled);

}  // namespace whyrss
