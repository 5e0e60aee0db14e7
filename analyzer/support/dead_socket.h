// Sockets in a directory that outlived the process that listened at them.
#pragma once

#include <string>

#include "support/folder.h"

namespace whyrss {

// Removes the socket `name` (AF_UNIX, SOCK_SEQPACKET) if it is this user's, and no process listens at it any more. A
// living listener sees a connection without a message.
bool remove_dead_socket(const Folder& folder, const std::string& name);

}  // namespace whyrss
