// At which polls between walks a process had another size than any walk tells.
#pragma once

#include <cstdint>
#include <vector>

#include "shim/trace/recording_format.h"

namespace whyrss {

struct WalkMoment {
  std::uint64_t begin_ns = 0, end_ns = 0;
  std::uint64_t rss_pages = 0;
};

// Whether pages that a fork made shared may have been copied, which moves no size.
enum class Copies : std::uint8_t { impossible, possible };

// Of each gap between walks, and of the time after the last one: the polls of the highest and the lowest size, what it
// came to at its end, and how it went there in steps; at most some thirty. Of gaps below 0.3 s only those that hold a
// size above all before them. By time; both lists are sorted by it.
std::vector<trace::Poll> moments_between_walks(const std::vector<trace::Poll>& polls,
                                               const std::vector<WalkMoment>& walks,
                                               Copies copies = Copies::impossible);

// Adds to `moments` the sizes that a process gave at the edges of its phases, also while it was walked; of many those
// before which it grew or shrank most. Both by time.
void add_edges(const std::vector<trace::Poll>& sizes, std::vector<trace::Poll>& moments);

}  // namespace whyrss
