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
#include "replay/pictured_walks.h"

namespace whyrss {

struct BuildSettings {
  std::uint64_t until_ns = std::numeric_limits<std::uint64_t>::max();  // later walks and polls are left out
  std::function<void(double)> progress{};                              // gets how much is done, from 0 to 1
  PictureBudget pictures{};
};

// Consumes `inputs`. The result's info is filled but for `path` and what only a walk of the machine
// tells (whether the collector still lives).
RecordingAccount build_account(const Manifest& manifest, std::vector<std::unique_ptr<ProcessInput>>& inputs,
                               const BuildSettings& settings = {});

}  // namespace whyrss
