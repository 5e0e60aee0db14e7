// The files of the processes of a recording.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "decode/process_input.h"
#include "recording/manifest.h"
#include "support/folder.h"
#include "support/result.h"

namespace whyrss {

using ProcessInputs = std::vector<std::unique_ptr<ProcessInput>>;

struct Processes {
  ProcessInputs inputs;
  std::vector<std::string> damage;  // of the recording as a whole
};

// Those that belong to the recording, with their files of these kinds.
Result<Processes> read_processes(const Folder& recording, const Manifest& manifest,
                                 std::initializer_list<trace::FileKind> kinds);

}  // namespace whyrss
