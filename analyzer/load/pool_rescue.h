// A recording whose collector was killed has its last events only in the pool: a file in memory of this machine, that
// no process removes. A report moves it into the recording, which any user may have forged, to make the report of
// another user read, copy or remove what is not the forger's. So:
//   who     only the owner of the recording: of its directory, into which no other user may write, and of its manifest
//   where   only where the collector puts a pool: /dev/shm/whyrss.<session>, or `pool` in the recording
//   what    only a regular file of the same user, with one name, that is a pool of the manifest's session
//   how     by descriptors: what was checked is what is read, copied, and then removed from its directory
#pragma once

#include <optional>
#include <string>

#include "load/pool_leftovers.h"
#include "recording/manifest.h"
#include "support/folder.h"

namespace whyrss {

struct Leftovers {
  std::optional<PoolCopy> pool;
  std::string why_not;  // one line: there is something, and it was not read
};

// The caller knows that no collector lives. The pool is read, and moved into the recording, which then has everything,
// wherever it is copied. It stays where it is while a process that can still write into it lives, or when the recording
// cannot be written. Several reports may do this at the same time; the pool is gone only when the recording has it.
// What the collector left beside it, the socket, is removed too. `is_here`: the pool's machine has not been restarted.
Leftovers take_leftovers(const Folder& recording, const Manifest& manifest, bool is_here);

}  // namespace whyrss
