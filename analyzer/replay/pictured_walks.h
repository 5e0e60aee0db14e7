// Which walks of which processes are shown as pictures of their address spaces.
#pragma once

#include <cstddef>
#include <vector>

#include "replay/estimate_moments.h"

namespace whyrss {

// At most. Of all processes together; the larger ones get more of it.
struct PictureBudget {
  std::size_t of_each = 0;   // pictures of one process
  std::size_t pictures = 0;  // each process has one also beyond that
  std::size_t entries = 0;   // PageMap::entries(); each picture has some also beyond that
};

struct PicturedWalk {
  std::size_t number = 0;
  std::size_t most_entries = 0;
};

// Of the walks of each process, ascending: the last one, the one with the most pages, and in each of equal parts of
// the time the one with the most.
std::vector<std::vector<PicturedWalk>> pictured_walks(const std::vector<std::vector<WalkMoment>>& of_processes,
                                                      const PictureBudget& budget);

}  // namespace whyrss
