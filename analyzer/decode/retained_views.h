// Views frames: small numpy views and the large buffers that they keep.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "attribute/address_space.h"
#include "attribute/live_set.h"
#include "decode/bytes.h"
#include "model/account.h"
#include "shim/trace/recording_format.h"

namespace whyrss {

struct WalkViews {
  std::uint64_t walk_end_ns = 0;
  std::vector<trace::RetainingView> views;
};

// Nothing when the frame is damaged.
std::optional<WalkViews> read_views(Bytes payload);

// Appends one entry per pair of lines: which made the buffers (blocks of `space`), which made the views (`objects` has
// them in exact mode).
void sum_views(const WalkViews& views, const AddressSpace& space, const LiveSet& objects, double time_s,
               std::vector<RetainedViews>& out);

}  // namespace whyrss
