// Asks the collector of a recording that is being made for what it has not stored yet.
#pragma once

#include <cstdint>
#include <optional>

#include "recording/manifest.h"

namespace whyrss {

// Until the collector has stored all events that were published when it was asked, at most half a second. When that
// was, in the recording's CLOCK_MONOTONIC; nothing where it cannot be asked (another user's, an older version, a pool
// that is not in /dev/shm), or does not answer in time.
std::optional<std::uint64_t> store_published(const Manifest& manifest);

}  // namespace whyrss
