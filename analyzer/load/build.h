// A recording's bytes, already in memory, to its account. No I/O: this is what the fuzzer drives.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "decode/process_input.h"
#include "model/account.h"
#include "recording/manifest.h"

namespace whyrss {

// Consumes `inputs`. The result's info is filled but for `path` and what only a walk of the machine
// tells (whether the collector still lives). Walks and polls after `until_ns` are left out. `progress` is told how much
// is done, from 0 to 1.
RecordingAccount build_account(const Manifest& manifest, std::vector<std::unique_ptr<ProcessInput>>& inputs,
                               std::uint64_t until_ns = std::numeric_limits<std::uint64_t>::max(),
                               const std::function<void(double)>& progress = {});

}  // namespace whyrss
