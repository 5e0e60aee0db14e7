// symbols.zst: the names of native code, kept beside the recording that refers to it, so that a copy of the
// directory resolves where the programs are not, and a second report reads no ELF file again.
//
// One frame of kind `names` per module; a JSON object: path, build_id (hex), debug_info, cut_at_cpu_s, and
// names: [[address, [function, file, line], ...], ...], innermost call first. Written whole, by rename; one that
// is missing, damaged or of another recording costs its names only.
#pragma once

#include <string>
#include <vector>

#include "model/name_table.h"
#include "support/folder.h"
#include "support/result.h"

namespace whyrss {

// What `recording` or, where that is another user's or cannot be written to, the user's cache keeps for the recording
// with this session (32 hex digits). What of it could not be read is added to `damage`, with the file's name.
NameTable read_name_file(const Folder& recording, const std::string& session,
                         std::vector<std::string>* damage = nullptr);

// To the recording, or else to the user's cache: $XDG_CACHE_HOME/whyrss or ~/.cache/whyrss.
Status write_name_file(const Folder& recording, const std::string& session, const NameTable& names);

}  // namespace whyrss
