// Where the pool of a recording lies, for readers: the file in /dev/shm, as far as it is the user's own.
#pragma once

#include <optional>
#include <string>

#include "recording/manifest.h"
#include "support/file.h"
#include "support/folder.h"

namespace whyrss {

Result<Folder> open_shared_memory();

// Its name there; nothing when it was elsewhere.
std::optional<std::string> shared_pool_name(const Manifest& manifest);

// For reading. Fails when it is another user's, or has another name too.
Result<Fd> open_pool(const Folder& shared_memory, const std::string& name);

}  // namespace whyrss
