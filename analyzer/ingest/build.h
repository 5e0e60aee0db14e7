// A recording's bytes, already in memory, to its account. No I/O: this is what the fuzzer drives.
#pragma once

#include <memory>
#include <vector>

#include "ingest/process_input.h"
#include "model/account.h"
#include "recording/manifest.h"

namespace whyrss {

// Consumes `inputs`. The result's info is filled but for `path` and what only a look at the machine
// tells (whether the collector still lives).
RecordingAccount build_account(const Manifest& manifest, std::vector<std::unique_ptr<ProcessInput>>& inputs);

}  // namespace whyrss
