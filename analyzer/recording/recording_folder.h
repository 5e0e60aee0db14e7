// The directory of a recording as its readers open it: every file relative to one descriptor, and only where each entry
// is of the kind and size that a recording may have. Its creator may have put anything there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "recording/manifest.h"
#include "support/folder.h"
#include "support/result.h"

namespace whyrss {

// Fails when it is no directory, or holds a FIFO, a socket, a device, a link, a directory or a file of an impossible
// size in place of a file, or anything in place of the directory of a process.
Result<Folder> open_recording(const std::string& path);

Result<Manifest> read_manifest(const Folder& recording);

struct ProcessFolder {
  std::string name;  // "<host>.<pid>.<start_ticks>"
  std::uint32_t pid = 0;
  std::uint64_t start_ticks = 0;
};

// By name.
Result<std::vector<ProcessFolder>> list_processes(const Folder& recording);

}  // namespace whyrss
